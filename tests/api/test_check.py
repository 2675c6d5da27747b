"""graphpass.check prints as the command."""

from support.commands import in_process
from support.models import export

import graphpass


def test_check_prints_as_the_command(capfd):
    model = export("llama", "onnx")
    found = graphpass.check(model, "cpu", confirm=False)
    done = in_process(capfd, "check", model, "--target", "cpu", "--no-confirm")
    assert found.holds is (done.code == 0)
    assert str(found) == done.out.rstrip("\n")
    assert found.to_json()["target"] == "cpu"


def test_check_of_an_encoder_and_its_decoder():
    assert graphpass.check(export("t5", "onnx"), "cpu", confirm=False).model.path.name.startswith("decoder")
