"""Write results of passes into files of cases: ``python -m graphpass.testing FILE...``."""

from __future__ import annotations

import sys
from pathlib import Path

from graphpass.testing.cases import update

if __name__ == "__main__":
    for name in sys.argv[1:]:
        update(Path(name))
