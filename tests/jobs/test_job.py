"""Settings of jobs, runs of passes with observers, and the comparison of a result with its input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphpass.engine.pipeline import parse
from graphpass.errors import PassFailedError, UnsupportedError, UsageError
from graphpass.jobs.job import Job, Proof, UnequalError, prove, run_passes
from graphpass.jobs.watch import Watch
from graphpass.testing import tiny_model
from graphpass.verify.comparison import Comparison, Divergence
from graphpass.verify.structure_proof import Region, StructureProof

JOB = Job(Path("in"), Path("out"), True, ("past_0=kv",), "auto")
SAME = Comparison((), ("logits",), 0.0, None, ())
DIFFERENT = SAME.diverging("attention 0", "its scale is 1, the candidate's 2")


class Lines(Watch):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.details: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def detail(self, text: str) -> None:
        self.details.append(text)


@pytest.mark.parametrize("settings", [{"steps": -1}, {"atol": -1.0}, {"budget": "much"}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(UsageError) as error:
        Proof(**settings)
    assert error.value.id == "GP250"


def test_the_manifest_notes_settings_that_change_the_result():
    noted = {"verify": True, "verify_each": False, "weights": "auto", "cache": ["past_0=kv"]}
    assert JOB.noted == noted
    assert replace(JOB, if_changed=True, time_passes=True, dump_dir=Path("dump")).noted == noted
    proof = Proof(steps=3, allow=("a",))
    assert replace(JOB, proof=proof).noted == {**noted, "proof": {"steps": 3, "allow": ["a"]}}
    assert "require" not in Proof(require="proven").settings


def test_observers_print_dump_and_measure(tmp_path):
    watch = Lines()
    job = replace(JOB, print_changed=True, dump_dir=tmp_path, time_passes=True)
    result, timings = run_passes(parse("to-openvino,fuse-attention"), tiny_model("llama", layers=1), job, watch)
    assert result.model.dialect == "openvino"
    assert any(
        line.startswith("+%") and "ScaledDotProductAttention" in line for line in "\n".join(watch.details).split("\n")
    )
    assert {file.name for file in tmp_path.glob("*.xml")} == {"01-to-openvino.xml", "02-fuse-attention.xml"}
    assert {timing.name for timing in timings} >= {"to-openvino", "fuse-attention"}
    assert run_passes((), tiny_model("llama", layers=1), JOB, Watch())[1] == ()


def test_a_failing_pass_comes_with_a_command_that_reduces_it(monkeypatch):
    passes = parse("to-openvino,make-stateful")
    monkeypatch.setattr(type(passes[1]), "run", lambda *_: 1 // 0)
    with pytest.raises(PassFailedError) as error:
        run_passes(passes, tiny_model("llama", layers=1), JOB, Watch())
    assert error.value.id == "GP401"
    command = "for a report run graphpass reduce None -p to-openvino,make-stateful --keeps GP401"
    assert error.value.hint.endswith(command)


def test_different_outputs_are_refused():
    assert prove(lambda: SAME, "") is SAME
    with pytest.raises(UnequalError) as error:
        prove(lambda: DIFFERENT, "try this, ")
    assert error.value.id == "GP601"
    assert error.value.comparison is DIFFERENT
    assert "first at attention 0: its scale is 1" in error.value.message
    assert error.value.hint == "nothing was written; try this, --no-verify writes the result anyway"


def test_equality_for_every_input_is_required_on_request():
    unproven = replace(SAME, structure=StructureProof(9, 8, 8, (Region("s", "Softmax", "no equal value"),)))
    assert prove(lambda: unproven, "") is unproven
    with pytest.raises(UnequalError, match="equal for every input: 8 of 9 operators") as error:
        prove(lambda: unproven, "", "proven")
    assert error.value.id == "GP606"
    proven = replace(SAME, structure=StructureProof(9, 9, 9))
    assert prove(lambda: proven, "", "proven") is proven


def test_models_that_do_not_run_need_no_comparison_to_be_written():
    def comparing():
        raise UnsupportedError("GP321", "the runtime cannot load it")

    with pytest.raises(UnsupportedError) as error:
        prove(comparing, "")
    assert error.value.id == "GP321"
    assert error.value.message == "the result cannot be verified: the runtime cannot load it"
    assert "--no-verify" in error.value.hint


def test_a_divergence_in_a_sequence_is_listed_with_few_remarks():
    parted = replace(SAME, divergence=Divergence(0, 1, "logits", (0,), 1.0, 2.0, "far"), warnings=tuple("abcdef"))
    with pytest.raises(UnequalError) as error:
        prove(lambda: parted, "")
    assert "WARNING: b" in error.value.message
    assert "WARNING: c" not in error.value.message
