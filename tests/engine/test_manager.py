from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from support.loaded import openvino_model

from graphpass.engine.instrumentation import Instrumentation
from graphpass.engine.manager import PassManager
from graphpass.engine.passes import Condition, Done, Pass, Skipped
from graphpass.errors import PassFailedError, PreconditionError, UnsupportedError
from graphpass.ir.model import Model
from graphpass.ir.types import Dialect


@pytest.fixture
def model():
    return openvino_model("llama", "ov-stateless")


@dataclass(frozen=True)
class Rename(Pass[Model]):
    """Changes the graph and nothing that it computes."""

    name: ClassVar[str] = "rename"
    to: str = "renamed"

    def run(self, model):
        model.ov_model.get_results()[0].set_friendly_name(self.to)
        model.mark_edited()
        return Done({"results renamed": 1})


@dataclass(frozen=True)
class Look(Pass[Model]):
    name: ClassVar[str] = "look"

    def run(self, model):
        return Done({"found": 0}, ("nothing to do",))


@dataclass(frozen=True)
class Skip(Pass[Model]):
    name: ClassVar[str] = "skip"
    ensures = (Condition("never", lambda model: "it never holds"),)

    def run(self, model):
        return Skipped("not for this model")


@dataclass(frozen=True)
class Choosy(Rename):
    name: ClassVar[str] = "choosy"
    only_for = (Condition("never", lambda model: "it never holds"),)


@dataclass(frozen=True)
class Break(Rename):
    """Edits the model, then raises."""

    name: ClassVar[str] = "break"

    def run(self, model):
        super().run(model)
        raise self.error()

    def error(self):
        return ZeroDivisionError("by zero\nwhich is\nnot allowed")


@dataclass(frozen=True)
class Refuse(Break):
    name: ClassVar[str] = "refuse"

    def error(self):
        return UnsupportedError("GP315", "node x is odd", "straighten it")


@dataclass(frozen=True)
class Promise(Rename):
    name: ClassVar[str] = "promise"
    ensures = (Condition("the moon", lambda model: "it is out of reach", "jump"),)


@dataclass(frozen=True)
class Need(Rename):
    name: ClassVar[str] = "need"
    requires = (Condition("the moon", lambda model: "it is out of reach", "jump"),)


@dataclass(frozen=True)
class OnnxOnly(Rename):
    name: ClassVar[str] = "onnx-only"
    dialect: ClassVar[Dialect | None] = "onnx"


class Log(Instrumentation):
    def __init__(self, name, events):
        self.name = name
        self.events = events

    def before_pipeline(self, passes, model):
        self.events.append((self.name, "before pipeline"))

    def after_pipeline(self, passes, model):
        self.events.append((self.name, "after pipeline"))

    def before_pass(self, step, model):
        self.events.append((self.name, f"before {step.name}"))

    def after_pass(self, step, model, result):
        self.events.append((self.name, f"after {step.name}"))

    def pass_failed(self, step, model, error):
        self.events.append((self.name, f"failed {step.name}: {type(error).__name__}"))


def test_passes_run_in_order_on_a_copy(model):
    before = model.digest()
    result = PassManager([Rename("a"), Look(), Skip(), Choosy(), Rename("b")]).run(model)
    assert [record.step.name for record in result.records] == ["rename", "look", "skip", "choosy", "rename"]
    assert [record.result for record in result.records] == [
        Done({"results renamed": 1}, changed=True),
        Done(notes=("nothing to do",)),
        Skipped("not for this model"),
        Skipped("it never holds"),
        Done({"results renamed": 1}, changed=True),
    ]
    assert result.model.ov_model.get_results()[0].get_friendly_name() == "b"
    assert result.changed
    assert result.model.edited
    assert model.digest() == before
    assert not model.edited


def test_an_empty_pipeline_gives_the_same_model(model):
    result = PassManager([]).run(model)
    assert not result.changed
    assert result.model.digest() == model.digest()


def test_no_pass_is_blamed_for_too_little_memory(model, monkeypatch):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr(Look, "run", exhausted)
    with pytest.raises(MemoryError):
        PassManager([Look()]).run(model)


def test_a_failing_pass_is_named_and_keeps_the_input(model):
    before = model.digest()
    with pytest.raises(PassFailedError) as caught:
        PassManager([Rename(), Look(), Break(), Rename()]).run(model)
    assert caught.value.id == "GP401"
    assert caught.value.message == ("pass break (after rename, look): ZeroDivisionError: by zero which is not allowed")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert model.digest() == before


def test_a_refusal_keeps_its_id_and_hint_and_gains_the_place(model):
    before = model.digest()
    with pytest.raises(UnsupportedError) as caught:
        PassManager([Refuse()]).run(model)
    error = caught.value
    assert (error.id, error.message, error.hint) == ("GP315", "pass refuse: node x is odd", "straighten it")
    assert model.digest() == before


@pytest.mark.parametrize(
    ("step", "error_type", "words"),
    [
        (Promise(), PassFailedError, "GP402: pass promise: does not ensure 'the moon': it is out of reach"),
        (Need(), PreconditionError, "GP302: pass need: requires 'the moon', but it is out of reach\n  hint: jump"),
        (OnnxOnly(), PreconditionError, "GP301: pass onnx-only: expected ONNX, got OpenVINO IR"),
    ],
)
def test_conditions_are_checked(model, step, error_type, words):
    with pytest.raises(error_type) as caught:
        PassManager([step]).run(model)
    assert str(caught.value).startswith(words)


def test_observers_are_called_inside_out(model):
    events = []
    PassManager([Look()], [Log("outer", events), Log("inner", events)]).run(model)
    assert events == [
        ("outer", "before pipeline"),
        ("inner", "before pipeline"),
        ("outer", "before look"),
        ("inner", "before look"),
        ("inner", "after look"),
        ("outer", "after look"),
        ("inner", "after pipeline"),
        ("outer", "after pipeline"),
    ]


def test_observers_hear_of_failures(model):
    events = []
    with pytest.raises(PassFailedError):
        PassManager([Break()], [Log("it", events)]).run(model)
    assert events[1:] == [("it", "before break"), ("it", "failed break: ZeroDivisionError")]
    with pytest.raises(PreconditionError):
        PassManager([Need()], [Log("it", events)]).run(model)
    assert events[-1] == ("it", "failed need: PreconditionError")


def test_analyses_are_forgotten_when_a_pass_changed_the_model(model):
    def name_of_result(model):
        return model.ov_model.get_results()[0].get_friendly_name()

    @dataclass(frozen=True)
    class Expect(Pass[Model]):
        name: ClassVar[str] = "expect"
        value: str = ""

        def run(self, model):
            assert model.analysis(name_of_result) == self.value
            return Done()

    PassManager([Rename("a"), Expect("a"), Rename("b"), Expect("b")]).run(model)
