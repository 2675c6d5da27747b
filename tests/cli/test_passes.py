from support.commands import in_process
from support.plugins import distribution, plugin_paths

import graphpass


def test_passes_lists_every_pass_with_its_options(capfd):
    done = in_process(capfd, "passes")
    assert (done.code, done.err) == (0, "")
    heads = [line for line in done.out.splitlines() if not line.startswith(" ")]
    assert heads == list(graphpass.pass_names())
    assert "beam-index  bool  default true  " in done.out


def test_a_broken_plugin_is_listed_with_the_reason(capfd, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(
        distribution(
            tmp_path,
            "broken-plugin",
            {"graphpass.passes": {"broken": "no_such:X"}, "graphpass.targets": {"torn": "no_such:Y"}},
        )
    )
    done = in_process(capfd, "passes")
    assert done.code == 0
    assert (
        "broken\n    cannot be used: GP221: pass 'broken' of distribution broken-plugin cannot be imported" in done.out
    )
    assert "make-stateful" in done.out
    done = in_process(capfd, "targets")
    assert done.code == 0
    assert "torn\n    cannot be used: GP221" in done.out
    assert in_process(capfd, "--help").code == 0
    assert in_process(capfd, "explain", "broken").code == 2
    assert in_process(capfd, "explain", "make-stateful").code == 0


def test_third_parties_are_listed(capfd, tmp_path, monkeypatch):
    for path in plugin_paths("sample_plugin", tmp_path):
        monkeypatch.syspath_prepend(path)
    done = in_process(capfd, "passes")
    assert (
        "sample-scale\n    Multiply the first output by a factor.\n      factor  float  default 1.0  Number to"
        in done.out
    )
    assert "sample\n    Somebody's own runtime." in in_process(capfd, "targets").out


def test_a_duplicate_name_is_reported(capfd, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(distribution(tmp_path, "twin", {"graphpass.passes": {"make-stateful": "twin:X"}}))
    done = in_process(capfd, "passes")
    assert done.code == 2
    assert "GP220" in done.err
    assert "distribution twin (twin:X)" in done.err
    assert in_process(capfd, "explain", "to-openvino").code == 0
