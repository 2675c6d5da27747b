"""Tokens and positions in the shapes that callers have, against the shapes that a model reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from graphpass.errors import UsageError
from graphpass.runtime.sessions.token_reader import TokenReader

if TYPE_CHECKING:
    from numpy.typing import NDArray


def reader(axes: tuple[int, ...] = (), *, embeddings: bool = False) -> TokenReader:
    inputs = SimpleNamespace(states=0, hidden=32, levels=0, takes_embeddings=embeddings, axes=axes)
    return TokenReader(inputs)  # type: ignore[arg-type]


def test_a_batch_axis_is_added() -> None:
    ids, rows = reader(), reader(embeddings=True)
    assert ids.in_rows([1, 2]).shape == (1, 2)
    assert ids.in_rows([1, 2], one_each=True).shape == (2, 1)
    assert ids.in_rows([[1, 2]]).shape == (1, 2)
    assert rows.in_rows(np.zeros((3, 32), np.float32)).shape == (1, 3, 32)
    assert rows.in_rows(np.zeros((3, 32), np.float32), one_each=True).shape == (3, 1, 32)


@pytest.mark.parametrize("fed", [np.zeros((1, 3, 16)), np.zeros((1, 0, 32)), np.zeros((1, 1, 1, 32))])
def test_embeddings_of_other_shapes_are_refused(fed: NDArray[np.float64]) -> None:
    with pytest.raises(UsageError, match=r"GP241.*inputs_embeds must be \[batch, length, 32\] and not empty"):
        reader(embeddings=True).ids(fed, "tokens")


def test_embeddings_are_returned_for_their_hashes() -> None:
    rows, fed = reader(embeddings=True), np.arange(64, dtype=np.float32).reshape(1, 2, 32)
    np.testing.assert_array_equal(rows.embeddings(rows.ids(fed, "tokens")), fed)
    assert reader().embeddings(np.zeros((1, 2), np.int64)) is None


def test_positions_are_repeated_for_leading_axes() -> None:
    wide = reader((3,))
    np.testing.assert_array_equal(wide.positions([[4, 5]], (1, 2)), [[[4, 5]]] * 3)
    assert wide.positions(np.zeros((3, 1, 2)), (1, 2)).flags.writeable
    with pytest.raises(UsageError, match=r"position_ids must be \[3, 1, 4\]"):
        wide.positions(np.zeros((2, 1, 4)), (1, 4))


def test_models_of_ids_refuse_embeddings() -> None:
    with pytest.raises(UsageError, match="GP240"):
        reader().embed_with(lambda ids: ids.astype(np.float32))
