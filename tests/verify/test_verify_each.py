"""Passes whose result is wrong, or that report a wrong outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from support.loaded import onnx_model, openvino_model
from support.models import export
from support.stated_outcomes import Idle, Scale

from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Done, Pass
from graphpass.engine.pipeline import parse
from graphpass.errors import PassFailedError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.verify.verify_each import VerifyEach


@pytest.fixture
def model():
    return openvino_model("llama", "ov-stateless")


@dataclass(frozen=True)
class Halves(Pass[Model]):
    """Write the logits as the sum of what is above 0 and what is below."""

    name: ClassVar[str] = "halves"

    def run(self, model):
        rewriter = model.rewriter()
        result, write = model.graph.writes["logits"], rewriter.under("halves")
        logits = result.source()
        above, below = (write.op(kind, logits, write.number(0.0, "f32")) for kind in ("Maximum", "Minimum"))
        rewriter.redirect(result, 0, write.op("Add", above, below))
        rewriter.finish()
        return Done({"outputs halved": 1})


def test_verify_each_accepts_right_passes(model):
    told = []
    PassManager([Idle(), Scale(), Idle(says="skipped")], [VerifyEach(told.append)]).run(model)
    assert told == []


@pytest.mark.slow
def test_verify_each_accepts_the_main_job():
    told = []
    passes = parse("to-openvino,fuse-attention,make-stateful")
    PassManager(passes, [VerifyEach(told.append)]).run(onnx_model("llama"))
    assert told == []


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Idle(says="changed"), "GP403: pass idle: reported changed, but the model is the same as before"),
        (Scale(says="unchanged"), "GP403: pass scale: reported unchanged, but the model differs from before"),
        (Scale(says="skipped"), "GP403: pass scale: reported skipped, but the model differs from before"),
        (Scale(factor=1.5), "GP404: pass scale: computes different outputs than the input: sequence 0, the prefill"),
    ],
)
def test_verify_each_catches(model, step, words):
    before = model.digest()
    with pytest.raises(PassFailedError) as caught:
        PassManager([step], [VerifyEach(lambda line: None)]).run(model)
    assert str(caught.value).startswith(words)
    assert model.digest() == before


def test_verify_each_names_the_wrong_pass(model):
    with pytest.raises(PassFailedError, match=r"GP404: pass scale \(after scale, idle\)"):
        PassManager([Scale(), Idle(), Scale(factor=2.0)], [VerifyEach(lambda line: None)]).run(model)


def test_verify_each_reports_unproven_passes():
    told = []
    PassManager([Halves()], [VerifyEach(told.append)]).run(onnx_model("llama"))
    assert [line.splitlines()[0] for line in told] == ["halves: not proven for every input"]
    assert "compared by numbers from " in told[0]


def test_verify_each_reports_uncompared_passes():
    told = []
    encoder_decoder = load(export("t5", "onnx") / "decoder_with_past_model.onnx")
    passes = parse("to-openvino")
    PassManager(passes, [VerifyEach(told.append)]).run(encoder_decoder)
    assert len(told) == 1
    assert told[0].startswith("to-openvino: numbers not compared: ")


@dataclass(frozen=True)
class DropInitializers(Pass):
    """Leaves variables without an initializer, which the CPU plugin does not compile."""

    name: ClassVar[str] = "drop-initializers"

    def run(self, model):
        from openvino._offline_transformations import apply_make_stateful_transformation

        pairs = {cache.read: cache.write for cache in analyze_caches(model).caches}
        apply_make_stateful_transformation(model.ov_model, pairs)
        model.mark_edited()
        return Done()


def test_verify_each_catches_an_uncompilable_result():
    stateless = load(export("llama", "ov-stateless"))
    passes = [DropInitializers()]
    with pytest.raises(PassFailedError, match="GP404: pass drop-initializers: "):
        PassManager(passes, [VerifyEach(lambda line: None)]).run(stateless)
