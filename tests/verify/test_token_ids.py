"""Token ids that a graph compares its tokens with."""

import pytest

from graphpass.testing import parse_model, tiny_model
from graphpass.verify.token_ids import compared_token_ids

TEXT = """%input_ids = Parameter : i64[b, n]
%table = Constant : f32[64, 8]
{}
%rows = Gather(%table, %chosen) {{axis=0}} : f32[b, n, 8]
Result(%rows) {{name=logits}}"""

#: A comparison, and the ids with their neighbours.
COMPARISONS = {
    "none": ("%chosen = Identity(%input_ids) : i64[b, n]", ()),
    "equal": (
        "%is_it = Equal(%input_ids, 31) : boolean[b, n]\n%chosen = Select(%is_it, 0, %input_ids) : i64[b, n]",
        (30, 31, 32),
    ),
    "on the left": (
        "%is_it = Less(0, %input_ids) : boolean[b, n]\n%chosen = Select(%is_it, %input_ids, 0) : i64[b, n]",
        (0, 1),
    ),
    "after arithmetic": (
        "%more = Add(%input_ids, 5) : i64[b, n]\n%chosen = Minimum(%more, 20) : i64[b, n]",
        (4, 5, 6, 19, 20, 21),
    ),
    "beyond 32 bits": ("%chosen = Minimum(%input_ids, 9223372036854775807) : i64[b, n]", ()),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_ids_and_their_neighbours(name):
    statements, ids = COMPARISONS[name]
    assert compared_token_ids(parse_model(TEXT.format(statements))) == ids


def test_exports_treat_tokens_alike():
    assert compared_token_ids(tiny_model("llama")) == ()
