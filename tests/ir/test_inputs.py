"""Inputs for tokens, and the number of positions."""

import pytest

from graphpass.errors import UsageError
from graphpass.ir.inputs import check_positions, is_merged, token_input
from graphpass.testing import parse_model


def graph_of(*names):
    inputs = "".join(f"%{name} = Parameter : f32[n, 4]\n" for name in names)
    return parse_model(f"{inputs}%y = Relu(%{names[0]})\nResult(%y) {{name=y}}").graph


@pytest.mark.parametrize(
    ("names", "found"),
    [(("inputs_embeds", "input_ids"), "input_ids"), (("mask", "inputs_embeds"), "inputs_embeds"), (("mask",), None)],
)
def test_tokens_come_before_embeddings(names, found):
    value = token_input(graph_of(*names))
    assert (value.name if value is not None else None) == found


def test_a_merged_decoder_has_an_input_for_its_branch():
    assert is_merged(graph_of("input_ids", "use_cache_branch"))
    assert not is_merged(graph_of("input_ids"))


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_positions_out_of_range_are_refused(count):
    check_positions("a past", 1)
    check_positions("a past", 2**31 - 1)
    with pytest.raises(UsageError, match=f"GP266: a past of {count} positions"):
        check_positions("a past", count)
