"""``graphpass convert``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .console import Console, pass_console, talk_options
from .models import cache_option, load_model
from .pipelines import Observation, instrument_options, prove, run_pipeline
from .results import if_changed_option, is_current, refuse_input, stage_result, weights_option
from .tokenizers import add_tokenizer, tokenizer_option

if TYPE_CHECKING:
    from graphpass.storage.write import Weights


@click.command("convert")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The folder to write to.")
@click.option(
    "--target", "target_name", required=True, help="What to make it fit for, with options: gpu{cache=reorder}."
)
@click.option("--verify/--no-verify", default=True, show_default=True, help="Compare the result with the input first.")
@cache_option
@click.option("--allow-unfused", is_flag=True, help="Write the model even if the target's contract does not hold.")
@weights_option
@if_changed_option
@tokenizer_option
@instrument_options
@talk_options
@pass_console
def command(
    console: Console,
    model: Path,
    output: Path,
    target_name: str,
    verify: bool,
    declared: tuple[str, ...],
    allow_unfused: bool,
    weights: Weights,
    if_changed: bool,
    tokenizer: bool,
    print_changed: bool,
    verify_each: bool,
    dump_dir: Path | None,
) -> None:
    """Make a model fit for a target, and prove that it computes the same.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them, or an encoder and its decoders as optimum
    exports them. The result, and the configuration and tokenizer files beside the input, go into the output folder: all
    of them or, where anything fails, none. The file graphpass.json tells what the result was made from and how. A
    result that the target's runtime would not fuse is not written; `graphpass check` tells more. `graphpass targets`
    lists targets and their options.
    """
    from graphpass.encoder_decoder import find_encoder_decoder
    from graphpass.pipeline import format_target, parse_target
    from graphpass.storage.tokenizer import missing_packages

    target = parse_target(target_name)
    observation = Observation(print_changed, verify_each, dump_dir)
    options = {"target": format_target(target), "verify": verify, "verify_each": verify_each}
    options |= {"allow_unfused": allow_unfused, "weights": weights, "cache": list(declared)}
    options["tokenizer"] = tokenizer and not missing_packages()
    if (parts := find_encoder_decoder(model)) is not None:
        from .encoder_decoder import Options, convert_folder

        asked = Options(output, if_changed, verify, declared, allow_unfused, weights, tokenizer, observation, options)
        convert_folder(console, parts, target, asked)
        return
    loaded = load_model(model, console, declared)
    refuse_input(loaded, output / target.output_file)

    from graphpass.analysis.caches import analyze_caches
    from graphpass.storage.manifest import describe, manifest_of
    from graphpass.storage.staging import staging
    from graphpass.storage.write import check_destination

    from .contract import hold_to_contract
    from .inventory import in_short, runs_with

    passes = target.pipeline(loaded)
    with console.activity("reading what the input holds"):
        described = describe(loaded, passes, options, weights=if_changed)
    if if_changed and is_current(manifest_of(output, is_file=False), described, console):
        return
    report = [f"{loaded.path} -> {output / target.output_file} for {format_target(target)}", ""]
    # The staging folder comes first, so that a place which cannot be written to is known before long work.
    with staging(output) as folder:
        result, told = run_pipeline(passes, loaded, console, observation)
        target.check(result.model)
        # Who asks for a form that the runtime does not fuse knows what it costs.
        allowed = allow_unfused or target.gives_up_fusion
        with console.activity("checking"):
            contract = hold_to_contract(result.model, target.name, confirm=verify, allowed=allowed)
        check_destination(result.model, output / target.output_file)
        report.append(f"before    {in_short(loaded, analyze_caches(loaded))}")
        report.append(f"after     {in_short(result.model, analyze_caches(result.model))}")
        report += runs_with(result.model)
        report += ["", *told]
        report += ["", *contract] if contract else []
        verdict = prove(loaded, result.model, console).summary() if verify else "not verified (--no-verify)"
        assert loaded.path is not None
        to_convert = tokenizer and result.model.dialect == "openvino"
        about_tokenizer = add_tokenizer(loaded.path, folder, console) if to_convert else []
        with console.activity("writing"):
            files = stage_result(result, loaded.path, folder, target.output_file, weights, described, companions=True)
        files += about_tokenizer
    if console.quiet:
        console.result(str(output / target.output_file))
    else:
        console.result(
            "\n".join(
                [*report, "", f"verified  {verdict}", "", f"written to {output}", *(f"  {file}" for file in files)]
            )
        )
