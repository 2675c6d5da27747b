"""Run sessions on the GPU plugin: the module is run inside the environment of `support.gpu_on_cpu`.

``python -m edits.gpu_sessions edits llama/ov-stateful 2 7`` runs two random sequences of edits from seed 7; ``int8``
those on caches in i8.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from edits.machine import Subject, check_edited, run_edits
from edits.oracle import Oracle, Recomputation
from edits.subjects import on_device

import graphpass
from graphpass.errors import UnsupportedError
from graphpass.runtime import DecodeSession, open_session
from graphpass.testing import Family, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def rows_come_and_go(subject: Subject) -> None:
    """Let beams part, swap and end, each after steps."""
    session, oracle = subject.session, Oracle(subject.recompute)
    prompt = [PROMPT[: subject.longest_prompt]]
    check_edited(subject, oracle, session.prefill(prompt), oracle.prefill(prompt))
    for rows in ([0], [0, 0], [1, 0], [1, 0, 1], [2, 0, 0], [1, 2], [0]):
        for edited in (session, oracle):
            edited.select(rows)
        for _ in range(2):
            ids = [[7 + row] for row in range(len(rows))]
            check_edited(subject, oracle, session.step(ids), oracle.step(ids))


def states_come_back(subject: Subject) -> None:
    """Bring a snapshot back, and begin again with more rows; another model ran in this process before."""
    session, oracle = subject.session, Oracle(subject.recompute)
    for rows in (1, 2):
        prompt = [PROMPT[: subject.longest_prompt]] * rows
        check_edited(subject, oracle, session.prefill(prompt), oracle.prefill(prompt))
    for _ in range(2):
        check_edited(subject, oracle, session.step([[5]] * rows), oracle.step([[5]] * rows))
    snapshot, expected = session.snapshot(), oracle.snapshot()
    check_edited(subject, oracle, session.step([[7]] * rows), oracle.step([[7]] * rows))
    session.restore(snapshot)
    oracle.restore(expected)
    check_edited(subject, oracle, session.step([[6]] * rows), oracle.step([[6]] * rows))
    # Linear caches are handed out, so that nothing is computed again.
    assert subject.kind != "linear" or session.stats.replayed_tokens == 0


def compressed() -> Subject:
    """Caches in i8, which the plugin keeps to itself; heads are of a size that its attention takes."""
    # The plugin has no kernel to compress keys that were rotated in f32.
    source = tiny_model(Family(positions="learned", head_dim=64))
    model = graphpass.PassManager(graphpass.get_target("gpu").pipeline(source)).run(source).model
    session = open_session(model, device="GPU", exact=False, properties={"KV_CACHE_PRECISION": "i8"})
    return Subject(session, Recomputation(open_session(model)), tolerance=5e-2)


def keeps_caches_to_itself(session: DecodeSession) -> None:
    """Refuse to compute a moved slot again, which nothing was computed like."""
    session.prefill(PROMPT)
    kept = session.step([7])
    session.trim(1)
    session.reorder([2], [3])
    with pytest.raises(UnsupportedError, match="KV_CACHE_PRECISION=f16") as caught:
        session.select([0, 0])
    assert caught.value.id == "GP370"
    session.rewind(0)
    session.step([PROMPT])
    np.testing.assert_allclose(session.step([7]), kept, atol=5e-2)


def main(what: str, form: str = "", sequences: str = "2", seed: str = "0") -> None:
    """Run what was asked for."""
    if what == "edits":
        name, variant = form.split("/")
        rows_come_and_go(on_device(name, variant, "GPU"))
        states_come_back(on_device(name, variant, "GPU"))
        run_edits(on_device(name, variant, "GPU"), int(sequences), random=int(seed))
    else:
        subject = compressed()
        assert subject.session.stats.bytes_copied == 0
        rows_come_and_go(subject)
        assert subject.session.stats.replayed_tokens > 0
        keeps_caches_to_itself(subject.session)
        run_edits(subject, int(sequences))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    # Intel's OpenCL runtime crashes now and then at the end of a process.
    os._exit(0)
