"""Observers of jobs have no effect unless hooks are overridden."""

from pathlib import Path

from graphpass.jobs.watch import Watch


def test_hooks_do_nothing(capfd):
    watch = Watch()
    watch.note("a note")
    watch.detail("a line")
    assert watch.choose(Path("folder")) is None
    assert capfd.readouterr() == ("", "")
