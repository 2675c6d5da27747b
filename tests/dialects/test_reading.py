"""Files are read by their dialect."""

import pytest
from support.models import export

from graphpass.dialects.reading import read_file
from graphpass.errors import ReadError
from graphpass.model_files import find_model


@pytest.mark.parametrize(("variant", "dialect"), [("onnx", "onnx"), ("ov-stateful", "openvino")])
def test_the_suffix_names_the_dialect(variant, dialect):
    file = find_model(export("llama", variant))
    assert (read_file(file).dialect, read_file(file).path) == (dialect, file)


@pytest.mark.parametrize("name", ["model.onnx", "model.xml"])
def test_a_damaged_file(tmp_path, name):
    (tmp_path / name).write_text("damaged")
    with pytest.raises(ReadError):
        read_file(tmp_path / name)
