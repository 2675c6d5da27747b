"""Find the environment that runs OpenVINO's GPU plugin on machines without a GPU."""

from __future__ import annotations

import os
from pathlib import Path

from graphpass.errors import UsageError

#: Environment variable with the path of a folder with ``env.sh`` and ``venv``, whose Python has a GPU plugin.
ENVIRONMENT = "GRAPHPASS_GPU_ENVIRONMENT"


def stand_in() -> Path | None:
    """Return the folder in the environment variable, if it is set.

    Raises:
        UsageError: GP228, the folder lacks ``env.sh`` or ``venv``.
    """
    setting = os.environ.get(ENVIRONMENT)
    if not setting:
        return None
    for name in ("env.sh", "venv/bin/python"):
        if not os.path.isfile(os.path.join(setting, name)):
            hint = "set it to a folder with env.sh and venv, or unset it"
            raise UsageError("GP228", f"{ENVIRONMENT} is {setting}, which has no {name}", hint)
    return Path(setting)


def entered(environment: Path) -> list[str]:
    """Return the start of a command that runs the environment's Python.

    ``env.sh`` sets variables that are required before the process starts. ``PYTHONPATH`` is unset, since packages of
    this Python may not work in the other.
    """
    script = 'unset PYTHONPATH; . "$0/env.sh" && exec "$0/venv/bin/python" "$@"'
    return ["/bin/sh", "-c", script, str(environment.resolve())]
