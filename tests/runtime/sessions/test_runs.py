"""Several tokens after a padded past, in models that weigh them by other columns of the mask than theirs."""

from __future__ import annotations

import numpy as np
import pytest
from support.first_columns import hybrid_masked_by_first_columns
from support.loaded import exported, openvino_after

from graphpass.errors import UnsupportedError
from graphpass.runtime import open_session

ROW = [1, 5, 9, 14, 20, 7, 33, 8, 100, 50]
IDS = np.array([ROW, [0, 0, *ROW[2:]]])
MASK = np.array([[1] * 10, [0] * 2 + [1] * 8])


def expected() -> np.ndarray:
    """Return what each row gives alone, in the model as it was exported."""
    session = open_session(exported("granitemoehybrid/ov-stateful"))
    return np.stack([session.prefill(ROW)[0, -1], session.prefill(ROW[2:])[0, -1]])


@pytest.mark.parametrize("passes", ["", "extend-mask-to-past"])
def test_several_tokens_after_padding_are_weighed_by_their_own_columns(passes: str):
    model = hybrid_masked_by_first_columns()
    session, wanted = open_session(openvino_after(model, passes) if passes else model), expected()
    for runs in ([10], [7, 1, 1, 1], [7, 3], [3, 7]):
        session.reset()
        start = 0
        for size in runs:
            logits = session.forward(IDS[:, start : start + size], MASK[:, : start + size])["logits"]
            start += size
        np.testing.assert_allclose(logits[:, -1], wanted, atol=1e-4)


def test_padding_without_a_mask_is_refused():
    session = open_session(hybrid_masked_by_first_columns())
    session.forward(IDS[:, :4], np.ones((2, 4), np.int64))
    late = np.ones((2, 8), np.int64)
    late[1, 4:6] = 0
    with pytest.raises(UnsupportedError, match="GP379"):
        session.forward(IDS[:, 4:8], late)
    session.reset()
    with pytest.raises(UnsupportedError, match="GP379"):
        session.forward(IDS[:, :1], MASK[:, :1])


def test_without_padding_several_tokens_are_one_run():
    session = open_session(hybrid_masked_by_first_columns())
    session.prefill([ROW[:4]])
    runs = []
    run = session.store.run
    session.store.run = lambda step: runs.append(step.length) or run(step)
    session.step([ROW[4:]])
    assert runs == [6]
