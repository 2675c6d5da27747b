"""What models see of the order of past positions, as told from the graph, against what they compute."""

from __future__ import annotations

import numpy as np
import pytest
from edits import subjects
from support.loaded import exported, onnx_model
from verify import faulty_models

import graphpass
from graphpass.analysis.attention.mask import AttentionMask, Scope
from graphpass.analysis.lengths.past_order import PastOrder, order_of_numbers, past_order
from graphpass.analysis.symbolic import expressions as ex
from graphpass.analysis.symbolic.step import BATCH, LENGTH, PAST, TOTAL
from graphpass.runtime import open_session
from graphpass.runtime.backends.stateless import StatelessStore

ANY = [
    ("deepseek_v3", "ov-stateful"),
    ("gpt2", "ov-stateful"),
    ("gpt2", "onnx"),
    ("llama", "ov-stateful"),
    ("llama", "ov-stateless"),
    ("llama", "onnx"),
    ("opt", "onnx"),
    ("phi3", "onnx"),
    ("qwen3_moe", "ov-stateful"),
    ("xglm", "ov-stateful"),
]
#: The mask counts what it does not hide: ALiBi.
ORDER = [("bloom", "onnx"), ("falcon_alibi", "onnx")]
#: Windows of entries; positions counted by the cache's length; an operator that is told a length.
INDEX = [
    ("gemma2", "onnx"),
    ("gemma3_text", "ov-stateful"),
    ("gemma3_text", "onnx"),
    ("gpt_neo", "onnx"),
    ("gpt_oss", "onnx"),
    ("mistral_sw8", "onnx"),
    ("granitemoehybrid", "ov-stateful"),
    ("lfm2", "ov-stateful"),
    ("qwen3_next", "ov-stateful"),
    ("llama", "onnx-genai"),
]
#: What graphpass makes of models, and what that sees.
CONVERTED: list[tuple[str, str, PastOrder]] = [
    ("bloom", "converted", "order"),
    ("falcon_alibi", "converted", "order"),
    ("phi3", "converted", "any"),
    ("qwen3", "converted", "any"),
    ("gemma2", "converted", "order"),
]
#: Hybrids that are told positions; one of them chooses experts.
HYBRIDS = ["granitemoehybrid", "lfm2", "qwen3_next"]


@pytest.mark.parametrize(
    ("name", "variant", "expected"),
    [(*one, "any") for one in ANY] + [(*one, "order") for one in ORDER] + [(*one, "index") for one in INDEX],
)
def test_past_order_of_exports(name: str, variant: str, expected: PastOrder) -> None:
    assert past_order(exported(f"{name}/{variant}")) == expected


@pytest.mark.parametrize(("name", "variant", "expected"), CONVERTED)
def test_past_order_of_converted_models(name: str, variant: str, expected: PastOrder) -> None:
    assert past_order(subjects.model(name, variant)) == expected


@pytest.mark.parametrize("passes", ["expose-position-ids", "mask-padding,expose-position-ids"])
@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrids_with_position_ids_see_no_order(name: str, passes: str) -> None:
    assert past_order(subjects.model(name, "ov-stateful", passes)) == "any"


@pytest.mark.parametrize("name", HYBRIDS)
def test_the_rollback_of_a_hybrid_with_position_ids_moves_no_entry(name: str) -> None:
    session = open_session(subjects.model(name, "ov-stateful", "expose-position-ids"))
    tokens = np.random.default_rng(0).integers(1, 300, 24).tolist()
    session.prefill([tokens[:12]])
    for _ in range(4):
        session.step([tokens[12:21]])
        session.trim(8)
        got = session.step([tokens[21:]])
        session.trim(4)
    assert session.stats.compactions == 0
    np.testing.assert_allclose(got, session.prefill([tokens[:13] + tokens[21:]])[:, -3:], atol=1e-4)


def _shown(row: ex.Expr, *, from_slot: int, to: ex.Expr) -> ex.Expr:
    """Count the slots from ``from_slot`` to ``to`` that attention_mask shows."""
    slot = ex.index("slot", TOTAL)
    is_shown = ex.read("attention_mask", (row, slot), "bool")
    counted = ex.conjunction(is_shown, ex.at_most(ex.number(from_slot), slot))
    return ex.running_sum(ex.choose(counted, ex.ONE, ex.ZERO), slot, to)


@pytest.mark.parametrize(("from_slot", "expected"), [(0, "order"), (3, "index")])
def test_windows_over_tokens_counted_by_the_mask(from_slot: int, expected: PastOrder) -> None:
    names = zip("bhqk", (BATCH, ex.ONE, LENGTH, TOTAL), strict=True)
    scope = Scope(*(ex.index(name, size) for name, size in names))
    of_key = _shown(scope.row, from_slot=from_slot, to=scope.key)
    of_query = _shown(scope.row, from_slot=from_slot, to=ex.add(PAST, scope.query))
    visible = ex.less(of_query, ex.add(of_key, ex.number(8)))
    node = onnx_model("llama").graph.nodes[0]
    assert order_of_numbers(AttentionMask(node, scope, visible, ex.ZERO), visible) == expected


def test_masks_weighting_new_tokens_count_no_past() -> None:
    """They are cut off a mask of all tokens from behind, or there is nothing else."""
    assert past_order(subjects.model("zamba2", "ov-stateful", "extend-mask-to-past")) == "any"
    assert past_order(exported("mamba/ov-stateful")) == "any"


def test_slices_of_channels_count_no_past() -> None:
    """Transformers weigh hidden states of hybrids by the mask, and slice the halves that a rotation exchanges."""
    model = onnx_model("llama").clone()
    rewriter, graph = model.rewriter(), model.graph
    write, mask = rewriter.under("weighed"), graph.parameters["attention_mask"]
    hidden = next(node for node in graph.of_op("Gather") if node.outputs[0].rank == 3)
    weight = write.op("ReduceMax", write.convert(mask, "f32"), axes=[0, 1], keep=True)
    rewriter.redirect_uses(hidden.outputs[0], write.op("Multiply", hidden.outputs[0], weight))
    rewriter.finish()
    assert past_order(model) == "any"


def test_a_mask_read_only_for_its_shape_hides_nothing() -> None:
    mutant = faulty_models.read_shape_of_mask_only(onnx_model("llama"))
    assert past_order(mutant) == "index"
    model = graphpass.PassManager(graphpass.get_target("cpu").pipeline(mutant)).run(mutant).model
    assert past_order(model) == "index"
    session = open_session(model)
    session.prefill([[3, 1, 4, 1, 5]])
    session.trim(2)
    got = session.step([[9, 2]])
    np.testing.assert_allclose(got, session.prefill([[3, 1, 4, 9, 2]])[:, -2:], atol=1e-4)


@pytest.mark.parametrize(
    ("name", "variant"), ANY + ORDER + [(name, variant) for name, variant, order in CONVERTED if order != "index"]
)
def test_hidden_entries_between_the_others_change_nothing(
    name: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Stateless sessions take them out at once, which costs them little.
    monkeypatch.setattr(StatelessStore, "steps_per_copy", 50.0)
    session = open_session(subjects.model(name, variant))
    tokens = np.random.default_rng(0).integers(1, 300, 18).tolist()
    session.forward([tokens])
    session.trim(2)
    got = session.forward([[7, 8]])["logits"]
    assert session.stats.compactions == 0
    session.reset()
    want = session.forward([[*tokens[:16], 7, 8]])["logits"][:, -2:]
    np.testing.assert_allclose(got, want, atol=1e-4)
