"""Faults of an IR that are found before OpenVINO reads it."""

import pytest

from graphpass.dialects.openvino.xml import check_ir, check_xml, openvino_words, string_constants
from graphpass.errors import ReadError


def constant(offset="0", size="8", kind="f32", name="w"):
    data = f'<data element_type="{kind}" offset="{offset}" size="{size}"/>'
    return f'<layer name="{name}" type="Const">{data}</layer>'


def written(folder, layers, weights=None, version="11"):
    path = folder / "model.xml"
    path.write_text(f'<net version="{version}"><layers>{layers}</layers></net>')
    if weights is not None:
        path.with_suffix(".bin").write_bytes(bytes(weights))
    return path


def test_weights_are_as_long_as_the_last_constant(tmp_path):
    layers = constant("8", "8", name="last") + constant("0", "8")
    check_ir(written(tmp_path, layers, 16))
    with pytest.raises(
        ReadError, match=r"constant 'last' of model\.xml ends at byte 16, the file has 15 bytes"
    ) as raised:
        check_ir(written(tmp_path, layers, 15))
    assert raised.value.id == "GP107"
    path = written(tmp_path, layers)
    path.with_suffix(".bin").unlink()
    with pytest.raises(ReadError, match=r"GP107: .*is missing"):
        check_ir(path)
    check_ir(written(tmp_path, ""))


def test_links_to_weights_of_other_folders_are_refused(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(8))
    (tmp_path / "model").mkdir()
    path = written(tmp_path / "model", constant())
    path.with_suffix(".bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ReadError, match="GP113"):
        check_ir(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<net", "is not XML, or damaged"),
        ('<model version="11"/>', "expected the element <net>, got <model>"),
        ("<net/>", "expected the element <net>"),
        ('<net version="9"/>', "unsupported version 9"),
        ('<!DOCTYPE net [<!ENTITY a "b">]><net version="11">&a;</net>', "declares a document type"),
        ('<?xml version="1.0" encoding="nothing"?><net version="11"/>', "declares an encoding"),
        (f'<net version="11">{"<a>" * 1000}{"</a>" * 1000}</net>', "deeper than 1000"),
        (f'<net version="11">{constant("-1")}</net>', "'w' has an invalid offset: '-1'"),
        (f'<net version="11">{constant("0", "")}</net>', "'w' has an invalid size: ''"),
        ('<net version="11"><layer name="r" type="ReadValue"><data/></layer></net>', "layer 'r' has no variable"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    path = tmp_path / "model.xml"
    path.write_text(text)
    with pytest.raises(ReadError) as raised:
        check_xml(path)
    assert raised.value.id == "GP106"
    assert words in raised.value.message


def test_a_variable_of_a_layer_and_string_constants(tmp_path):
    read = '<layer name="r" type="ReadValue"><data variable_id="v"/></layer>'
    other = '<layer name="p" type="Parameter"><data offset="x"/></layer>'
    path = written(tmp_path, read + constant("0", "8") + constant("8", "24", "string") + other)
    check_xml(path)
    assert string_constants(path) == [(8, 24)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Exception from src/core.cpp:9:\n  Check 'x' failed at src/a.cpp:3:\n\nno such layer\nin m\n",
            "no such layer in m",
        ),
        ("Exception from src/core.cpp:9:", "Exception from src/core.cpp:9:"),
        ("", "RuntimeError"),
    ],
)
def test_messages_lose_their_source_positions(text, words):
    assert openvino_words(RuntimeError(text)) == words
