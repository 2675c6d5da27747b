"""graphpass targets."""

from support.commands import in_process


def test_targets_are_listed(capfd):
    done = in_process(capfd, "targets")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("cpu\n    OpenVINO on CPU")
    assert "writes openvino_model.xml; contract: OpenVINO IR, stateful" in done.out
