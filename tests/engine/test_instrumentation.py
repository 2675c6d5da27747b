from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import ClassVar

import numpy
import pytest
from support.loaded import onnx_model, openvino_model
from support.models import export

from graphpass import testing
from graphpass.analysis.caches.inventory import analyze_caches
from graphpass.engine.instrumentation import DumpDir, PrintAll, PrintChanged
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Done, Pass, Skipped
from graphpass.engine.pipeline import parse
from graphpass.errors import GraphpassError, PassFailedError
from graphpass.io import load
from graphpass.ir.model import Model
from graphpass.verify.verify_each import VerifyEach

GELU = """
%x = Parameter : f32[n, 4]
%cube = Power(%x, 3.0)
%small = Multiply(%cube, 0.044715)
%sum = Add(%x, %small)
%scaled = Multiply(%sum, 0.7978846)
%tanh = Tanh(%scaled)
%gate = Add(%tanh, 1.0)
%half = Multiply(%x, 0.5)
%y = Multiply(%half, %gate)
Result(%y) {name=y}
"""


@pytest.fixture
def model():
    return openvino_model("llama", "ov-stateless")


@dataclass(frozen=True)
class Scale(Pass[Model]):
    """Multiplies the logits by a factor, and says of it what it is told to."""

    name: ClassVar[str] = "scale"
    factor: float = 1.0
    says: str = "changed"

    def run(self, model):
        from openvino import opset13

        result = model.ov_model.output("logits").get_node()
        source = result.input_value(0)
        scaled = opset13.multiply(source, opset13.constant(numpy.float32(self.factor)))
        source.set_names(set())
        scaled.output(0).set_names({"logits"})
        result.input(0).replace_source_output(scaled.output(0))
        if self.says == "skipped":
            return Skipped("not today")
        if self.says == "changed":
            model.mark_edited()
        return Done({"outputs scaled": 1, "others": 0}, ("logits are scaled",))


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


@dataclass(frozen=True)
class Idle(Pass[Model]):
    name: ClassVar[str] = "idle"
    says: str = "unchanged"
    seconds: float = 0.0
    fails: bool = False

    def run(self, model):
        time.sleep(self.seconds)
        if self.fails:
            raise ValueError("no")
        if self.says == "skipped":
            return Skipped("not today")
        if self.says == "changed":
            model.mark_edited()
            return Done()
        return Done(notes=("nothing found",))


def test_records_show_outcomes_of_passes(model):
    passes = [Scale(), Idle(), Idle(says="skipped"), Idle(says="changed", seconds=0.05)]
    records = PassManager(passes).run(model).records
    assert [(record.step.name, record.outcome) for record in records] == [
        ("scale", "1 outputs scaled, 0 others"),
        ("idle", "unchanged"),
        ("idle", "skipped: not today"),
        ("idle", "changed"),
    ]
    assert [record.notes for record in records] == [("logits are scaled",), ("nothing found",), (), ()]
    assert records[3].seconds >= 0.05 > records[1].seconds


def test_print_changed_shows_differences():
    told = []
    PassManager([Idle(), *parse("fuse-functions")], [PrintChanged(told.append)]).run(testing.parse_model(GELU))
    assert "\n".join(told) == dedent("""\
        --- before fuse-functions
        +++ after fuse-functions
        @@ -1,10 +1,3 @@
         %x = Parameter : f32[n, 4]
        -%cube = Power(%x, 3.0) : f32[n, 4]
        -%small = Multiply(%cube, 0.044715) : f32[n, 4]
        -%sum = Add(%x, %small) : f32[n, 4]
        -%scaled = Multiply(%sum, 0.7978846) : f32[n, 4]
        -%tanh = Tanh(%scaled) : f32[n, 4]
        -%gate = Add(%tanh, 1.0) : f32[n, 4]
        -%half = Multiply(%x, 0.5) : f32[n, 4]
        -%y = Multiply(%half, %gate) : f32[n, 4]
        -Result(%y) {name=y}
        +%y.gelu = com.microsoft.FastGelu(%x) : f32[n, 4]
        +Result(%y.gelu) {name=y}""")


def test_print_changed_reports_changes_outside_the_text(model):
    told = []
    PassManager([Idle(), Idle(says="changed")], [PrintChanged(told.append)]).run(model)
    assert told == ["--- idle: the text is unchanged"]


def test_print_all_shows_each_graph():
    told = []
    PassManager([Idle(), *parse("fuse-functions")], [PrintAll(told.append)]).run(testing.parse_model(GELU))
    assert [text.splitlines()[0] for text in told] == ["// after idle, unchanged", "// after fuse-functions"]
    assert "\n%y.gelu = com.microsoft.FastGelu(%x) : f32[n, 4]\n" in told[1]


def test_dump_dir_holds_the_model_after_each_pass(tmp_path):
    folder = tmp_path / "dump" / "here"
    result = PassManager([Idle(), *parse("to-openvino"), Scale()], [DumpDir(folder)]).run(onnx_model("llama"))
    assert sorted(file.name for file in folder.iterdir() if file.suffix != ".bin") == [
        "01-idle.onnx",
        "02-to-openvino.xml",
        "03-scale.xml",
    ]
    assert load(folder / "01-idle.onnx").digest() == onnx_model("llama").digest()
    assert load(folder / "03-scale.xml").digest() == result.model.digest()


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


def test_an_observer_failing_to_write_fails_the_pipeline(model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GraphpassError, match="GP501: pass scale: cannot write"):
        PassManager([Scale()], [DumpDir(Path(tmp_path / "file" / "dump"))]).run(model)
