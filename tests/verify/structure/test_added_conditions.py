"""Conditions on the batch, on rows and on token ids that a candidate has and its reference has not."""

import pytest
from mutants import triggers
from mutants.faults import faults
from support.commands import in_process
from support.loaded import converted, exported

import graphpass
from graphpass.ir.model import Model
from graphpass.verify import compare_within
from graphpass.verify.structure.proof import compare_structures

assert triggers


@pytest.fixture(scope="module")
def llama():
    reference = exported("llama/onnx")
    return reference, converted(reference, "ort").model


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("logits of batches from 5 on", "the batch size"),
        ("logits of rows from the third on", "the number of a row"),
        ("logits if token 113 is fed", "token ids"),
        ("values of rows from the third on halved", "the number of a row"),
    ],
)
def test_added_conditions_are_named(llama, kind, subject):
    reference, result = llama
    fault = next(fault for fault in faults(result) if fault.kind == kind)
    found = compare_structures(reference, fault.put_into(result))
    assert found is not None
    assert found.equal < found.operators
    assert [region.reason.split(",")[0] for region in found.added] == [f"compares {subject}"]


def with_rare_batch(model: Model) -> Model:
    """Negate the logits of batches that no machine holds."""
    changed = model.clone()
    rewriter = changed.rewriter()
    write = rewriter.under("rare")
    logits = next(node for node in changed.graph.of_op("Result") if node.name == "logits")
    is_rare = write.op("GreaterEqual", write.size(changed.graph.parameters["input_ids"], 0), 1 << 40)
    sign = write.op("Select", is_rare, write.number(-1.0, "f32"), write.number(1.0, "f32"))
    rewriter.redirect(logits, 0, write.op("Multiply", logits.source(), sign))
    rewriter.finish()
    changed.mark_edited()
    return changed


def test_added_conditions_are_differences_unless_allowed(llama, tmp_path, capfd):
    reference, result = llama
    changed = with_rare_batch(result)
    found = compare_within(reference, changed, steps=1)
    assert found.divergence is not None, found.summary()
    operator, name = str(found.divergence.place).split()
    assert operator == "GreaterEqual"
    assert found.divergence.reason.startswith("compares the batch size, which the reference does not")
    assert compare_within(reference, changed, steps=1, allow=[name]).passed
    graphpass.save(reference, tmp_path / "reference.onnx")
    graphpass.save(changed, tmp_path / "changed.onnx")
    command = ("verify", tmp_path / "reference.onnx", tmp_path / "changed.onnx", "--steps", 1)
    done = in_process(capfd, *command)
    assert done.code == 1
    assert f"first at GreaterEqual {name}: compares the batch size" in done.out
    assert in_process(capfd, *command, "--allow", name).code == 0
    unknown = in_process(capfd, *command, "--allow", f"{name}s")
    assert unknown.code == 2
    assert f"GP271: the candidate has no node called '{name}s'\nhint: did you mean {name}?" in unknown.err


def test_a_reference_with_the_same_condition_allows_it(llama):
    """Whatever the rest of the graph does."""
    reference, result = llama
    both = with_rare_batch(reference), with_rare_batch(result)
    fault = next(fault for fault in faults(both[1]) if fault.kind == "logits at position 9")
    found = compare_structures(both[0], fault.put_into(both[1]))
    assert found is not None
    assert found.equal < found.operators
    assert found.added == ()
