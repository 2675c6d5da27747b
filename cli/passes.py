"""``graphpass passes``."""

from __future__ import annotations

from .console import Console, console_command, format_option


@console_command("passes")
@format_option("text", "json")
def command(console: Console, form: str) -> None:
    """List the passes and their options.

    `graphpass explain PASS` prints details. If the distribution of a pass is broken, the pass is listed with the
    reason.
    """
    from graphpass.reports.registered import passes_json

    console.report(form, _as_text, passes_json)


def _as_text() -> str:
    from graphpass.engine.options import documentation, options_of
    from graphpass.engine.registry import get_pass, pass_names
    from graphpass.errors import UsageError
    from graphpass.reports.text import columns, spoken

    lines: list[str] = []
    for name in pass_names():
        try:
            pass_class = get_pass(name)
            options = options_of(pass_class)
        except UsageError as error:
            lines += [name, f"    cannot be used: {error.id}: {error.message}"]
            continue
        summary = documentation(pass_class).partition("\n")[0]
        rows = columns([option.row for option in options], indent="      ")
        lines += [name, f"    {summary}", *rows]
    return spoken("\n".join(lines))
