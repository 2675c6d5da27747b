"""Reports on the differences of two models."""

from __future__ import annotations

from reports.hostile_pages import HOSTILE, pictures_in
from support.models import export

import graphpass
from graphpass.reports.diff import diff_models
from graphpass.reports.difference import Diff, difference_in_short
from graphpass.testing import parse_model


def test_differences_escape_html():
    before = graphpass.load(export("llama", "onnx"))
    after = before.clone()
    after.proto.metadata_props.add(key=HOSTILE, value=HOSTILE)
    after.proto.graph.node[5].name = HOSTILE
    after.mark_edited()
    made = Diff(before, after, diff_models(before, after)).to_html(HOSTILE, HOSTILE)
    assert "<script>alert" not in made
    assert "<img" not in made
    assert pictures_in(made)[0]["titles"] == [HOSTILE, HOSTILE]


TEXT = """%x = Parameter : f32[n, 4]
%a = Relu(%x)
%b = Tanh(%a)
Result(%b) {name=y}"""


def difference(after):
    models = parse_model(TEXT), parse_model(after)
    return Diff(*models, diff_models(*models))


def test_text_lists_operators_and_their_facets():
    found = difference(TEXT.replace("Tanh", "Exp"))
    assert not found.same
    assert "operators by type\n" in str(found)
    assert "+1  Exp" in str(found).replace("   ", "  ")
    assert "  ~ b  kind: Tanh -> Exp" in str(found)
    assert str(found).endswith("unchanged weights: 100.00 % (0 of 0 bytes)")
    assert difference_in_short(found.difference) == ("-1 Tanh", "+1 Exp", "operators: 1 changed") or set(
        difference_in_short(found.difference)
    ) == {"-1 Tanh", "+1 Exp", "operators: 1 changed"}


def test_equal_models_have_no_difference():
    found = difference(TEXT)
    assert found.same
    assert str(found).startswith("None -> None: the same")
    assert difference_in_short(found.difference) == ()
    assert found.to_json()["same"] is True


def test_long_sections_are_folded():
    many = "%x = Parameter : f32[n, 4]\n" + "\n".join(
        f"%v{place + 1} = Relu(%{f'v{place}' if place else 'x'})" for place in range(20)
    )
    models = (
        parse_model(f"{many}\nResult(%v20) {{name=y}}"),
        parse_model(f"{many.replace('Relu', 'Tanh')}\nResult(%v20) {{name=y}}"),
    )
    found = Diff(*models, diff_models(*models))
    assert "  ... 8 more; --all prints them" in found.text()
    assert "more; --all prints them" not in found.text(unfolded=True)
