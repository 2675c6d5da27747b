"""A Dask cluster and an S3-compatible server, each in processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: What S3 clients need to reach moto, besides its address.
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class Cluster:
    """A scheduler and its workers, which no nanny starts anew."""

    scheduler: str
    workers: list[subprocess.Popen[str]]


@contextlib.contextmanager
def _program(
    log: Path, line: str, *command: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, subprocess.Popen]]:
    """Run a program, once it has printed a line of the pattern; yields what the first group matched."""
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=stream,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )
    try:
        with log.open() as stream:
            printed = ""
            while not (match := re.search(line, printed)):
                assert process.poll() is None, printed
                printed += stream.read()
        yield match[1], process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def cluster(folder: Path, workers: int, environment: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Start a cluster of workers with one thread each."""
    variables = environment or {}
    with contextlib.ExitStack() as stack:
        arguments = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        ready = r"Scheduler at:\s+(tcp://\S+)"
        scheduler, _ = stack.enter_context(_program(folder / "scheduler", ready, *arguments, environment=variables))
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder))
        started = [
            stack.enter_context(
                _program(
                    folder / f"worker-{number}",
                    r"Registered to:\s+(\S+)",
                    *("distributed.cli.dask_worker", scheduler, *options),
                    environment=variables,
                )
            )[1]
            for number in range(workers)
        ]
        yield Cluster(scheduler, started)


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Start moto's server; yields the environment variables that lead clients to it."""
    arguments = ("moto.server", "-H", "127.0.0.1", "-p", "0")
    with _program(folder / "s3", r"Running on (http://\S+)", *arguments, environment={}) as (address, _):
        yield {"AWS_ENDPOINT_URL": address, **CREDENTIALS}
