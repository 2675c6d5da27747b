"""Folders at addresses: names, patterns and leases."""

from __future__ import annotations

import threading

import pytest

from graphpass.errors import ReadError, WriteError
from graphpass.storage.addresses import StoredFolder, matching

pytestmark = pytest.mark.usefixtures("cache_folder")


def test_a_name_cannot_lead_out_of_the_folder(memory, tmp_path):
    with pytest.raises(ReadError, match="is outside its folder"):
        StoredFolder("memory://models").fetch(["../evil"], tmp_path)


@pytest.mark.slow
def test_one_writer_at_a_time(memory, tmp_path):
    """The second waits for the first; a dead one's lease ends, and what it left goes."""
    memory.pipe_file("/results/.graphpass-llama-0123/openvino_model.bin", b"half")
    folder = StoredFolder("memory://results/llama")
    order = []
    taken = threading.Event()

    def second():
        taken.wait()
        with StoredFolder("memory://results/llama").leased(1):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with folder.leased(1) as lease:
        assert not memory.exists("/results/.graphpass-llama-0123")
        taken.set()
        thread.join(2.5)
        order.append("first")
        lease.check()
    thread.join()
    assert order == ["first", "second"]
    # Nobody renews this one.
    memory.pipe_file("/results/.graphpass-llama-lease", b"dead 1")
    with folder.leased(0.5) as lease:
        lease.check()
        memory.pipe_file("/results/.graphpass-llama-lease", b"another 1")
        (tmp_path / "graphpass.json").write_text("{}")
        with pytest.raises(WriteError, match="another process took the lease"):
            folder.publish(tmp_path, "graphpass.json", lease)
    assert not memory.exists("/results/llama")


def test_patterns_mean_addresses(memory):
    for name in ("a", "b"):
        memory.pipe_file(f"/models/{name}/model.onnx", b"")
    assert matching("memory://models/*/model.onnx") == [f"memory:///models/{name}/model.onnx" for name in "ab"]
