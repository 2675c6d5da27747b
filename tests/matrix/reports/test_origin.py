"""Version, time and commit of a report."""

import re
import subprocess

from graphpass.matrix.reports.origin import origin_of


def test_the_origin_of_a_report_is_found(monkeypatch, tmp_path):
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "BUILD_SOURCEVERSION", "GIT_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    outside = origin_of(tmp_path)
    assert (outside.time, outside.commit) == ("2023-11-14 22:13 UTC", "")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert origin_of(tmp_path).commit == ""  # there is no commit
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", tmp_path, *identity, "commit", "--quiet", "--allow-empty", "-m", "m"], check=True)
    assert re.fullmatch(r"[0-9a-f]{40}", origin_of(tmp_path).commit)
    monkeypatch.setenv("CI_COMMIT_SHA", "f245dd2")
    assert origin_of(tmp_path).commit == "f245dd2"
