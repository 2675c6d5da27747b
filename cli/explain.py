"""``graphpass explain``."""

from __future__ import annotations

from typing import Any

import click

from graphpass.engine.passes import Pass

from .completion import complete_explained
from .console import Console, console_command, format_option


@console_command("explain")
@click.argument("name", metavar="PASS|ERROR-ID", shell_complete=complete_explained)
@format_option("text", "json")
def command(console: Console, name: str, form: str) -> None:
    """Explain a pass, or an error by its id.

    \b
    graphpass explain make-stateful
    graphpass explain GP203
    """  # noqa: D301 - click keeps the lines of a paragraph after this character
    from graphpass.error_catalog import explain_error, is_error_id

    if is_error_id(name):
        explained = explain_error(name)
        id_, _, explanation = explained.partition(": ")
        entry = {"pass": None, "error": {"id": id_, "explanation": explanation}}
        console.report(form, lambda: explained, lambda: entry)
        return

    from graphpass.engine.registry import get_pass, pass_names, target_names
    from graphpass.errors import UsageError
    from graphpass.reports.registered import pass_json

    if name in target_names() and name not in pass_names():
        raise UsageError("GP211", f"{name!r} is a target, not a pass", "graphpass targets describes it")
    pass_class = get_pass(name)
    console.report(form, lambda: _explain_pass(pass_class), lambda: {"pass": pass_json(pass_class), "error": None})


def _explain_pass(pass_class: type[Pass[Any]]) -> str:
    from graphpass.engine.options import documentation, options_of
    from graphpass.reports.text import columns, spoken

    options = options_of(pass_class)
    written = ",".join(f"{option.name}={option.default_text}" for option in options)
    lines = [f"{pass_class.name}{{{written}}}" if options else pass_class.name, ""]
    lines.append(f"accepts   {pass_class.dialect or 'ONNX and OpenVINO'} models")
    for verb, conditions in (
        ("requires", pass_class.requires),
        ("only for", pass_class.only_for),
        ("ensures", pass_class.ensures),
    ):
        if conditions:
            lines.append(f"{verb:<8}  {', '.join(condition.name for condition in conditions)}")
    if options:
        lines += ["", "options", *columns([option.row for option in options])]
    return spoken("\n".join([*lines, "", documentation(pass_class)]))
