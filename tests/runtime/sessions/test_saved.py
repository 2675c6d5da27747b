"""States on disk: computed once, and gone on from in other processes and sessions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from edits.subjects import model, on_device
from safetensors.numpy import load_file, save_file
from support.loaded import exported
from support.models import fixtures

from graphpass.errors import ReadError, UnsupportedError, UsageError, WriteError
from graphpass.runtime import DecodeSession, open_session

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]

#: One of each backend, kind of model and way of keeping caches; the last are windowed, packed, shared and in place.
FORMS = [
    ("llama", "ov-stateful", ""),
    pytest.param("qwen3", "ov-stateless", "", marks=pytest.mark.slow),
    ("gpt2", "onnx", ""),
    ("lfm2", "ov-stateful", ""),
    pytest.param("mamba", "onnx-raw", "", marks=pytest.mark.slow),
    pytest.param("gemma3_text", "ov-stateful", "", marks=pytest.mark.slow),
    pytest.param("lfm2", "ov-stateful", "insert-snapshot", marks=pytest.mark.slow),
    pytest.param("mistral_sw8", "onnx", "", marks=pytest.mark.slow),
    pytest.param("llama", "ov-stateful", "pack", marks=pytest.mark.slow),
    pytest.param("qwen3", "onnx-genai", "", marks=pytest.mark.slow),
    pytest.param("llama", "onnx", "static-cache{capacity=32}", marks=pytest.mark.slow),
]

#: Another process: opens what it is told to, and prints the next logits.
_CONTINUE = """
import sys, graphpass
from graphpass.runtime import open_session
session = open_session(graphpass.load(sys.argv[1]), state=sys.argv[2])
print(session.length, session.step([7]).astype("float32").tobytes().hex())
"""


@pytest.mark.parametrize(("name", "variant", "passes"), FORMS)
def test_another_session_continues_with_equal_bits(name: str, variant: str, passes: str, tmp_path: Path) -> None:
    opened = model(name, variant, passes)
    session, path = open_session(opened), tmp_path / "new" / "prefix.safetensors"
    session.prefill([PROMPT] * session_rows(session))
    session.step([7] * session.batch)
    session.save(path)
    other = open_session(opened, state=path)
    assert (other.length, other.batch) == (len(PROMPT) + 1, session.batch)
    for token in (5, 8):
        np.testing.assert_array_equal(other.step([token] * other.batch), session.step([token] * other.batch))
    # It edits what it was given as if it had computed it.
    for edited in (session, other):
        edited.rewind(4)
    np.testing.assert_allclose(other.step([6] * other.batch), session.step([6] * other.batch), atol=1e-4)


def session_rows(session: DecodeSession) -> int:
    return 2 if session.fixed_batch is None else session.fixed_batch


@pytest.mark.parametrize(
    ("name", "variant"), [("llama", "ov-stateful"), pytest.param("gpt2", "onnx", marks=pytest.mark.slow)]
)
def test_another_process_continues_with_equal_bits(name: str, variant: str, tmp_path: Path) -> None:
    path = tmp_path / "prefix.safetensors"
    session = open_session(exported(f"{name}/{variant}"))
    session.prefill(PROMPT)
    session.save(path)
    command = [sys.executable, "-c", _CONTINUE, str(fixtures() / name / variant), str(path)]
    length, logits = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert int(length) == len(PROMPT)
    assert logits == session.step([7]).astype("float32").tobytes().hex()


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("llama", "ov-stateful"),
        pytest.param("qwen3", "ov-stateless", marks=pytest.mark.slow),
        pytest.param("lfm2", "ov-stateful", marks=pytest.mark.slow),
    ],
)
def test_edits_before_saving_and_right_after_loading(name: str, variant: str, tmp_path: Path) -> None:
    path, opened = tmp_path / "prefix.safetensors", model(name, variant)
    session = open_session(opened)
    session.prefill([PROMPT])
    session.step([[7, 8, 9]])
    session.trim(2)
    session.select([0, 0])
    session.step([5, 6])
    session.select([1, 0])
    session.save(path)
    other = open_session(opened, state=path)
    other.trim(1)
    other.select([0])
    recomputed = open_session(opened).prefill([*PROMPT, 7, 4])[:, -1]
    np.testing.assert_allclose(other.step([4])[:, -1], recomputed, atol=1e-4)
    session.load(path)
    recomputed = open_session(opened).prefill([[*PROMPT, 7, 6, 4], [*PROMPT, 7, 5, 4]])[:, -1]
    np.testing.assert_allclose(session.step([4, 4])[:, -1], recomputed, atol=1e-4)


def test_padding_is_kept(tmp_path: Path) -> None:
    path, opened = tmp_path / "prefix.safetensors", model("llama", "ov-stateful")
    session = open_session(opened)
    session.prefill([[0, 0, *PROMPT]], [[0, 0, *[1] * len(PROMPT)]])
    session.save(path)
    np.testing.assert_array_equal(open_session(opened, state=path).step([7]), session.step([7]))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "prefix.safetensors"
    session = open_session(exported("llama/ov-stateful"))
    session.prefill(PROMPT)
    session.save(path)
    return path


def test_a_state_of_another_model(saved: Path) -> None:
    with pytest.raises(UsageError, match="another model") as caught:
        open_session(exported("qwen3/ov-stateful"), state=saved)
    assert caught.value.id == "GP252"


def test_a_state_of_another_precision(saved: Path) -> None:
    with pytest.raises(UsageError, match="KV_CACHE_PRECISION=f32, and this session has f16") as caught:
        open_session(exported("llama/ov-stateful"), properties={"KV_CACHE_PRECISION": "f16"}, state=saved)
    assert caught.value.id == "GP252"


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _dropped(path: Path) -> None:
    _rewrite(path, lambda tensors: tensors.popitem())


def _shortened(path: Path) -> None:
    _rewrite(path, lambda tensors: tensors.update(tokens=tensors["tokens"][:, :, 1:].copy()))


def _rewrite(path: Path, change: object) -> None:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)  # type: ignore[operator]
    save_file(tensors, path, metadata)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_cut, "damaged"),
        (lambda path: path.write_text("{}"), "damaged"),
        (lambda path: path.unlink(), "found no file"),
        (lambda path: save_file({"a": np.zeros(3)}, path), "not a state that this version"),
        (
            lambda path: save_file({"a": np.zeros(3)}, path, {"format": "graphpass state 0"}),
            "not a state that this version",
        ),
        (_dropped, "is missing"),
        (_shortened, r"origins is \[2, 8\], not \[2, 7\]"),
    ],
)
def test_an_unreadable_state(damage: object, words: str, saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "prefix.safetensors"
    path.write_bytes(saved.read_bytes())
    damage(path)  # type: ignore[operator]
    session = open_session(exported("llama/ov-stateful"))
    session.prefill(PROMPT)
    with pytest.raises(ReadError, match=words) as caught:
        session.load(path)
    assert caught.value.id == "GP117"
    assert session.length == len(PROMPT)


def test_flipped_bits_are_refused(saved: Path, tmp_path: Path) -> None:
    path, content = tmp_path / "prefix.safetensors", saved.read_bytes()
    session = open_session(exported("llama/ov-stateful"))
    for bit in np.random.default_rng(3).integers(0, 8 * len(content), 40).tolist():
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises((ReadError, UsageError)) as caught:
            session.load(path)
        assert caught.value.id in {"GP117", "GP252"}
    session.load(saved)


def test_an_empty_session_is_not_saved(tmp_path: Path) -> None:
    session = open_session(exported("llama/ov-stateful"))
    with pytest.raises(UsageError, match="nothing to save") as caught:
        session.save(tmp_path / "prefix.safetensors")
    assert caught.value.id == "GP243"
    assert not list(tmp_path.iterdir())


def test_an_unwritable_file(saved: Path, tmp_path: Path) -> None:
    session = open_session(exported("llama/ov-stateful"), state=saved)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError) as caught:
        session.save(tmp_path / "file" / "prefix.safetensors")
    assert caught.value.id == "GP501"


def test_a_state_in_caches_of_fixed_capacity(tmp_path: Path) -> None:
    """Loaded tokens take room, and dropped ones are not saved."""
    path, opened = tmp_path / "prefix.safetensors", model("llama", "onnx", "static-cache{capacity=16}")
    session = open_session(opened)
    session.prefill(PROMPT)
    session.save(path)
    session.load(path)
    with pytest.raises(UsageError) as caught:
        session.step([[*PROMPT, 1]])
    assert caught.value.id == "GP267"
    session.rewind(6)
    session.save(path)
    assert open_session(opened, state=path).length == 6


def test_a_restored_snapshot_is_saved_whole(tmp_path: Path) -> None:
    """Buffers of fixed capacity held no entries until the next step, after a restored snapshot."""
    path, opened = tmp_path / "prefix.safetensors", model("llama", "onnx", "static-cache{capacity=16}")
    session = open_session(opened)
    session.prefill(PROMPT)
    kept = session.snapshot()
    session.rewind(0)
    session.restore(kept)
    session.save(path)
    np.testing.assert_array_equal(open_session(opened, state=path).step([7]), session.step([7]))


@pytest.mark.slow
def test_npuw_returns_no_caches(saved: Path, tmp_path: Path) -> None:
    session = on_device("gemma3_text", "ov-stateful", "NPU").session
    session.prefill([PROMPT])
    for refused in (lambda: session.save(tmp_path / "prefix.safetensors"), lambda: session.load(saved)):
        with pytest.raises(UnsupportedError, match="does not expose") as caught:
            refused()
        assert caught.value.id == "GP370"
    assert not list(tmp_path.iterdir())
