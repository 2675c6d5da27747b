"""``python -m graphpass.cli``."""

import sys

from .main import main

sys.exit(main())
