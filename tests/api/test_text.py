"""graphpass.text prints the graph of a file or of a model in memory."""

import graphpass
from graphpass.api.text import text
from graphpass.testing import parse_model

TEXT = "%x = Parameter : f32[n, 4]\n%y = Relu(%x) : f32[n, 4]\nResult(%y) {name=y}"


def test_files_and_models_have_one_text(tmp_path):
    model = parse_model(TEXT)
    graphpass.save(model, tmp_path / "m.onnx")
    assert text(tmp_path / "m.onnx") == text(model)
    assert TEXT in text(model) or text(model).startswith("%x = Parameter : f32[n, 4]\n")
    assert text(parse_model(text(model))) == text(model)
