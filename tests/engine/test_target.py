"""Targets that implement a pipeline alone, and contracts that do not hold."""

from dataclasses import dataclass

import pytest
from support.caches import inventory

from graphpass.engine.conditions import OPENVINO
from graphpass.engine.target import Target
from graphpass.errors import PassFailedError, UsageError
from graphpass.testing import parse_model

MODEL = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}")


@dataclass(frozen=True)
class Plain(Target):
    name, description, dialect, output_file = "plain", "A runtime.", "openvino", "m.xml"
    contract = (OPENVINO,)

    def pipeline(self, model):
        return ()


@dataclass(frozen=True)
class Ruled(Plain):
    def predict(self, model, inventory):
        return (model, inventory)

    def observe(self, model):
        return f"ran {model}"

    def files(self, model, source):
        return {"config.json": f"{model} {source}"}


@pytest.mark.parametrize(
    ("call", "identifier"),
    [
        (lambda target: target.encoder_pipeline(MODEL, None), "GP226: target plain"),
        (lambda target: target.decoder_pipeline(MODEL, None), "GP226: target plain"),
        (lambda target: target.predict(MODEL, inventory()), "GP223: target plain has no rules"),
    ],
)
def test_optional_methods_are_refused_by_name(call, identifier):
    with pytest.raises(UsageError, match=identifier):
        call(Plain())


def test_rules_are_found_by_the_method():
    assert Ruled().has_rules
    assert not Plain().has_rules
    assert "plain has no trial" in Plain().observe(MODEL)


def test_pairs_are_treated_as_their_decoder_by_default():
    target = Ruled()
    assert target.predict_beside("encoder", "decoder", "caches") == ("decoder", "caches")
    assert target.observe_beside("encoder", "decoder") == "ran decoder"
    assert target.files_beside("encoder", "decoder", "source") == {"config.json": "decoder source"}


def test_a_broken_contract_names_the_condition_and_the_hint():
    with pytest.raises(PassFailedError, match=f"GP405: target plain requires '{OPENVINO.name}'") as raised:
        Plain().require_contract(MODEL)
    assert raised.value.hint == OPENVINO.hint
    ir = parse_model("%x = Parameter : f32[4]\n%y = Relu(%x)\nResult(%y) {name=y}", "openvino")
    Plain().require_contract(ir)
