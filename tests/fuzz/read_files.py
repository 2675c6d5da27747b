"""Looks at files that may be damaged or hostile, each in a process of its own with little memory and little time.

Run as a program: reads lines of arguments with tabs between them, runs ``graphpass`` with them, and prints a line: the
exit code, or the signal as a negative number, and the end of what was said.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

#: Bytes of address space beyond what the libraries take, and seconds.
MEMORY, TIME = 2 * 2**30, 20


def main() -> None:
    import onnxruntime  # noqa: F401
    import openvino  # noqa: F401

    import graphpass
    import graphpass.targets.consumers  # noqa: F401
    from graphpass.cli import diff, inspect  # noqa: F401
    from graphpass.dialects.onnx.model import OnnxModel  # noqa: F401
    from graphpass.dialects.openvino.model import OpenVINOModel  # noqa: F401

    graphpass.analyze_caches  # noqa: B018
    taken = next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmSize")
    )
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as said:
            child = os.fork()
            if not child:
                _look(line.rstrip("\n").split("\t"), said.fileno(), taken + MEMORY)
            _, status = os.waitpid(child, 0)
            said.seek(0)
            words = said.read().strip().splitlines() or [""]
        code = os.waitstatus_to_exitcode(status)
        sys.stdout.write(f"{code}\t{' | '.join(words)[-1500:]}\n")
        sys.stdout.flush()


def _look(arguments: list[str], said: int, memory: int) -> None:
    from graphpass.cli.main import main as graphpass

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(TIME)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number, target in ((0, nowhere), (1, nowhere), (2, said)):
        os.dup2(target, number)
    code = graphpass(["--verbose", *arguments])
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
