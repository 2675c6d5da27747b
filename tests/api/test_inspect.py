"""graphpass.inspect prints as the command."""

import json

from support.commands import in_process
from support.models import export

import graphpass


def test_inspect_prints_as_the_command(capfd):
    model = export("llama", "onnx")
    found = graphpass.inspect(model)
    assert found.inventory.kind == "kv"
    assert str(found) == in_process(capfd, "inspect", model).out.rstrip("\n")
    printed = json.loads(in_process(capfd, "inspect", model, "--format", "json").out)
    assert printed | json.loads(json.dumps(found.to_json())) == printed
    assert "<html" in found.to_html("llama")
    assert graphpass.inspect(found.model).inventory == found.inventory
