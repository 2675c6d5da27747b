"""Comparisons of slots that NPUW corrects, and those that it does not."""

import pytest

from graphpass.targets.npu.windows import unpatched_window
from graphpass.testing import parse_model

MODEL = """%shape = Parameter : i64[4]
%n = Parameter : i64[]
%x = Parameter : boolean[1, 1, 1, 1]
%y = Parameter : i64[1, 1, n, 1]
%past = Gather(%shape, 2) {axis=0}
%end = Add(%past, %n)
%q0 = Range(%past, %end, 1)
%k0 = Range(0, %end, 1)
%q1 = Unsqueeze(%q0, 0)
%q2 = Unsqueeze(%q1, 0)
%queries = Unsqueeze(%q2, 3)
%k1 = Unsqueeze(%k0, 0)
%k2 = Unsqueeze(%k1, 0)
%keys = Unsqueeze(%k2, 0)
"""
FORM = """%from = Add(%queries, -4)
%inside = Greater(%keys, %from)
%both = BitwiseAnd(%inside, %x)
%causal = LessEqual(%keys, %queries)
%mask = BitwiseAnd(%both, %causal)"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (FORM, []),
        (FORM.replace("Greater(%keys, %from)", "Less(%from, %keys)"), ["inside"]),
        (FORM.replace("%both = BitwiseAnd(%inside, %x)", "%both = LogicalAnd(%inside, %x)"), ["inside"]),
        (FORM.replace("Add(%queries, -4)", "Subtract(%queries, 4)"), ["inside"]),
        ("%from = Add(%keys, 4)\n%mask = LessEqual(%from, %queries)", ["mask"]),
        ("%mask = LessEqual(%keys, %queries)", []),
        ("%apart = Subtract(%queries, %keys)\n%mask = GreaterEqual(%apart, 6)", ["mask"]),
        ("%apart = Subtract(%queries, %keys)\n%mask = GreaterEqual(%apart, 0)", []),
        ("%from = Add(%y, -4)\n%mask = Greater(%keys, %from)", []),
    ],
)
def test_windows_in_another_form_are_not_corrected(text, found):
    graph = parse_model(f"{MODEL}{text}\nResult(%mask) {{name=mask}}", "openvino").graph
    assert [node.name for node in unpatched_window(graph)] == found
