"""graphpass new-target writes a package, and names the next step."""

import pytest
from support.commands import in_process


def test_the_next_step_is_printed(capfd, tmp_path):
    folder = tmp_path / "made"
    done = in_process(capfd, "new-target", "my-own", "-o", folder)
    assert done == (0, f"{folder}\nnext: pip install -e '{folder}[test]' && python -m pytest {folder}\n", "")
    assert (folder / "graphpass_my_own" / "my_own.py").is_file()
    assert in_process(capfd, "new-target", "my-own", "-q", "-o", tmp_path / "quiet").out == f"{tmp_path / 'quiet'}\n"


@pytest.mark.parametrize(("name", "words"), [("cpu", "target cpu exists"), ("My", "is not in kebab-case")])
def test_other_names_are_refused(capfd, tmp_path, name, words):
    done = in_process(capfd, "new-target", name, "-o", tmp_path / "made")
    assert (done.code, "GP276" in done.err, words in done.err) == (2, True, True)
    assert not (tmp_path / "made").exists()


def test_the_folder_has_a_default(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert in_process(capfd, "new-target", "my-own").code == 0
    assert (tmp_path / "graphpass-my-own").is_dir()
