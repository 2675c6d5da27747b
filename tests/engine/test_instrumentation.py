from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from support.loaded import onnx_model, openvino_model
from support.stated_outcomes import Idle, Scale

from graphpass import testing
from graphpass.engine.instrumentation import DumpDir, PrintAll, PrintChanged
from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import GraphpassError
from graphpass.io import load

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


def test_an_observer_failing_to_write_fails_the_pipeline(model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(GraphpassError, match="GP501: pass scale: cannot write"):
        PassManager([Scale()], [DumpDir(Path(tmp_path / "file" / "dump"))]).run(model)
