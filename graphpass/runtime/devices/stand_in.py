"""Find the environment that stands in for a GPU, on machines without one."""

from __future__ import annotations

import os
from pathlib import Path

from graphpass.errors import UsageError

#: The environment variable that names a folder with ``env.sh`` and ``venv``, whose Python finds a GPU plugin.
ENVIRONMENT = "GRAPHPASS_GPU_ENVIRONMENT"


def stand_in() -> Path | None:
    """Return the folder that the environment variable names, if any.

    Raises:
        UsageError: GP228, the folder is no such environment.
    """
    setting = os.environ.get(ENVIRONMENT)
    if not setting:
        return None
    for name in ("env.sh", "venv/bin/python"):
        if not os.path.isfile(os.path.join(setting, name)):
            hint = "let it name a folder with env.sh and venv, or unset it"
            raise UsageError("GP228", f"{ENVIRONMENT} is {setting}, which has no {name}", hint)
    return Path(setting)


def entered(environment: Path) -> list[str]:
    """Return the start of a command that runs the environment's Python.

    Its variables have to be set before the process starts, and packages of this Python are not for another.
    """
    script = 'unset PYTHONPATH; . "$0/env.sh" && exec "$0/venv/bin/python" "$@"'
    return ["/bin/sh", "-c", script, str(environment.resolve())]
