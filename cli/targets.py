"""``graphpass targets``."""

from __future__ import annotations

from .console import Console, console_command, format_option


@console_command("targets")
@format_option("text", "json")
def command(console: Console, form: str) -> None:
    """List the targets that models can be converted to.

    If the distribution of a target is broken, the target is listed with the reason.
    """
    from graphpass.reports.registered import targets_json

    console.report(form, _as_text, targets_json)


def _as_text() -> str:
    import textwrap

    from graphpass.engine.options import documentation, options_of
    from graphpass.engine.registry import get_target, target_names
    from graphpass.errors import UsageError
    from graphpass.reports.text import columns, spoken

    parts: list[str] = []
    for name in target_names():
        try:
            target = get_target(name)
        except UsageError as error:
            parts += [name, f"    cannot be used: {error.id}: {error.message}"]
            continue
        contract = ", ".join(condition.name for condition in target.contract) or "nothing"
        rules = "graphpass check has its rules" if target.has_rules else "graphpass check has no rules"
        options = columns([option.row for option in options_of(type(target))])
        lines = [target.description, f"writes {target.output_file}; contract: {contract}; {rules}", *options, ""]
        parts += [name, textwrap.indent("\n".join([*lines, spoken(documentation(type(target)))]), "    ")]
    return spoken("\n".join(parts))
