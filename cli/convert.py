"""``graphpass convert``."""

from __future__ import annotations

import click

from .console import Console, pass_console, talk_options
from .job import Job, job_options
from .models import load_model
from .pipelines import prove, run_pipeline
from .results import Result, refuse_input
from .tokenizers import add_tokenizer, tokenizer_option


@click.command("convert")
@click.option(
    "--target", "target_name", required=True, help="What to make it fit for, with options: gpu{cache=reorder}."
)
@click.option("--allow-unfused", is_flag=True, help="Write the model even if the target's contract does not hold.")
@tokenizer_option
@job_options(output="The folder to write to.", verify=True)
@talk_options
@pass_console
def command(console: Console, job: Job, target_name: str, allow_unfused: bool, tokenizer: bool) -> None:
    """Make a model fit for a target, and prove that it computes the same.

    MODEL is an .onnx file, an .xml file, or a folder that holds one of them, or an encoder and its decoders as optimum
    exports them. The result, and the configuration and tokenizer files beside the input, go into the output folder: all
    of them or, where anything fails, none. The file graphpass.json tells what the result was made from and how. A
    result that the target's runtime would not fuse is not written; `graphpass check` tells more. `graphpass targets`
    lists targets and their options.
    """
    from graphpass.artifacts.encoder_decoder import find_encoder_decoder, folder_of_part
    from graphpass.artifacts.tokenizer import missing_packages
    from graphpass.engine.pipeline import format_target, parse_target

    target = parse_target(target_name)
    options = {"target": format_target(target), "allow_unfused": allow_unfused}
    options["tokenizer"] = tokenizer and not missing_packages()
    if (parts := find_encoder_decoder(job.model)) is not None:
        from .encoder_decoder import convert_folder

        convert_folder(console, job, parts, target, options, allow_unfused=allow_unfused, tokenizer=tokenizer)
        return
    if (folder := folder_of_part(job.model)) is not None:
        console.note(f"{job.model} is one part of the model in {folder}; name the folder to convert all of it")
    loaded = load_model(job.model, console, job.declared)
    written_to = job.output / target.output_file
    refuse_input(loaded, written_to)

    from graphpass.analysis.caches.inventory import analyze_caches
    from graphpass.io import check_destination

    from .contract import hold_to_contract
    from .inventory import in_short, runs_with

    passes = target.pipeline(loaded)
    made = Result(console, job, loaded, passes, options)
    if made.is_there():
        return
    report = [f"{loaded.path} -> {written_to} for {format_target(target)}", ""]
    with made.staged() as folder:
        result, told = run_pipeline(passes, loaded, console, job.observation)
        allowed = allow_unfused or target.gives_up_fusion
        with console.activity("checking"):
            contract = hold_to_contract(result.model, target, confirm=job.verify, allowed=allowed)
        check_destination(result.model, written_to)
        report.append(f"before    {in_short(loaded, analyze_caches(loaded))}")
        report.append(f"after     {in_short(result.model, analyze_caches(result.model))}")
        report += runs_with(result.model)
        report += ["", *told]
        report += ["", *contract] if contract else []
        verdict = prove(loaded, result.model, console).summary() if job.verify else "not verified (--no-verify)"
        assert loaded.path is not None
        to_convert = tokenizer and result.model.dialect == "openvino"
        about_tokenizer = add_tokenizer(loaded.path, folder, console) if to_convert else []
        made.write(folder, {target.output_file: result.model}, result.records, loaded.path)
    made.tell([*report, "", f"verified  {verdict}"], about_tokenizer)
