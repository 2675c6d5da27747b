"""``graphpass devices``."""

from __future__ import annotations

from .console import Console, console_command, format_option


@console_command("devices")
@format_option("text", "json")
def command(console: Console, form: str) -> None:
    """List the runtimes and adapters of this machine, and how to install missing ones.

    An adapter is listed if the runtime reports it; no model is run on it.
    """
    from graphpass.reports.devices import devices_json, devices_text
    from graphpass.runtime.devices import find_runtimes

    runtimes = find_runtimes()
    console.report(form, lambda: devices_text(runtimes), lambda: devices_json(runtimes))
