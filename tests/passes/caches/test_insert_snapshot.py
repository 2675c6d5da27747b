"""`insert-snapshot`: steps that are taken back leave what recomputation without them leaves."""

from __future__ import annotations

import random

import numpy
import pytest
from support.decode import Decoder, compiled, greedy
from support.loaded import exported, openvino_after, openvino_model
from support.models import reference

import graphpass
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Skipped
from graphpass.errors import PreconditionError, UnsupportedError
from graphpass.passes.caches.insert_snapshot import InsertSnapshot
from graphpass.runtime import open_session

MODELS = ["lfm2", "granitemoehybrid", "qwen3_next", "mamba"]

SLOTS = 3


def source(name):
    """Hybrids with positions from outside, so that their KV caches can be gone back in by masking out."""
    model = exported(f"{name}/ov-stateful")
    return model if name == "mamba" else openvino_after(model, "expose-position-ids")


def kept(name):
    return openvino_after(source(name), InsertSnapshot(slots=SLOTS))


def decoder(model):
    return Decoder(compiled(model.ov_model).create_infer_request())


def back(steps):
    return {"steps_back": numpy.array([steps], numpy.int32)}


@pytest.mark.parametrize("name", MODELS)
def test_zero_steps_back_change_nothing(name):
    expected = reference(name)
    found = greedy(compiled(kept(name).ov_model).create_infer_request(), [expected["prompt_ids"]] * 2, 12)
    assert found == [expected["greedy_ids"]] * 2


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_steps_taken_back_leave_no_trace(name, seed):
    """Random walks of steps forth and back, the states of which are those of the surviving tokens alone."""
    choose = random.Random(seed)
    walker = decoder(kept(name))
    history, undoable = [[3, 5, 8, 4]], 0
    walker.step(numpy.array(history), **back(0))
    slots = [list(range(4))]
    for _ in range(8):
        steps = choose.randint(0, undoable)
        if steps:
            for gone in slots[-steps:]:
                walker.mask[:, gone] = 0
            del history[-steps:], slots[-steps:]
        token = choose.randrange(5, 300)
        slots.append([walker.mask.shape[1]])
        found = walker.step(numpy.array([[token]]), **back(steps))
        history.append([token])
        undoable = min(undoable - steps + 1, SLOTS)
    fresh = decoder(source(name))
    for ids in history:
        expected = fresh.step(numpy.array([ids]))
    numpy.testing.assert_allclose(found, expected, atol=1e-4)


def test_tokens_fed_together_are_one_step():
    walker, fresh = decoder(kept("lfm2")), decoder(source("lfm2"))
    walker.step(numpy.array([[3, 5, 8]]), **back(0))
    walker.step(numpy.array([[9, 10, 11, 12]]), **back(0))
    walker.mask[:, 3:] = 0
    fresh.step(numpy.array([[3, 5, 8]]))
    token = numpy.array([[21]])
    numpy.testing.assert_allclose(walker.step(token, **back(1)), fresh.step(token), atol=1e-5)


def test_beams_reorder_the_history():
    walker, fresh = decoder(kept("lfm2")), decoder(source("lfm2"))
    prompts = numpy.array([[3, 5, 8], [4, 9, 11]])
    walker.step(prompts, **back(0))
    walker.step(numpy.array([[9], [10]]), beams=[1, 0], **back(0))
    walker.step(numpy.array([[7], [6]]), **back(0))
    walker.mask[:, 3:] = 0
    fresh.step(prompts[[1, 0]])
    token = numpy.array([[21], [22]])
    numpy.testing.assert_allclose(walker.step(token, **back(2)), fresh.step(token), atol=1e-5)


def test_a_reset_forgets_the_history():
    expected = reference("lfm2")
    request = compiled(kept("lfm2").ov_model).create_infer_request()
    for _ in range(2):
        assert greedy(request, [expected["prompt_ids"]], 12) == [expected["greedy_ids"]]


@pytest.mark.parametrize("name", MODELS)
def test_linear_caches_get_histories(name):
    before, after = (graphpass.analyze_caches(make(name)) for make in (source, kept))
    facts = [
        [(c.name, c.kind, c.role, c.layer, c.axes, c.shape) for c in one.of_kind("kv", "linear")]
        for one in (before, after)
    ]
    assert facts[0] == facts[1]
    histories = {cache.name: cache.shape for cache in after.of_kind("other")}
    assert histories == {f"{cache.name}.history": (SLOTS, *cache.shape) for cache in before.of_kind("linear")}
    assert after.kind == before.kind


def test_sessions_run_without_stepping_back():
    expected = reference("lfm2")
    session = open_session(kept("lfm2"))
    assert session.prefill(expected["prompt_ids"])[0, -1].argmax() == expected["greedy_ids"][0]


class TestRefuses:
    def test_a_second_run_is_refused(self):
        with pytest.raises(PreconditionError, match="GP368"):
            PassManager([InsertSnapshot()]).run(kept("lfm2"))

    def test_a_stateless_model_is_refused(self):
        with pytest.raises(PreconditionError, match="GP302"):
            PassManager([InsertSnapshot()]).run(openvino_model("lfm2", "ov-stateless"))

    def test_states_without_an_initial_value(self):
        from openvino._offline_transformations import apply_make_stateful_transformation

        model = openvino_model("lfm2", "ov-stateless").clone()
        pasts = [port.name for port in model.inputs if "past.conv" in port.name]
        apply_make_stateful_transformation(model.ov_model, {name: name.replace("past", "present") for name in pasts})
        model.mark_edited()
        with pytest.raises(UnsupportedError, match=r"GP368: .* no initial value"):
            PassManager([InsertSnapshot()]).run(model)

    def test_a_model_without_linear_caches_is_skipped(self):
        result = PassManager([InsertSnapshot()]).run(openvino_model("llama")).records[0].result
        assert isinstance(result, Skipped)

    def test_zero_slots_are_refused(self):
        with pytest.raises(ValueError, match="at least 1"):
            InsertSnapshot(slots=0)
