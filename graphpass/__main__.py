"""Run the program as ``python -m graphpass``."""

from graphpass.cli.__main__ import run

if __name__ == "__main__":
    run()
