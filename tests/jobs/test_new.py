"""Packages of new passes and targets: their names and files."""

import re

import pytest

from graphpass.api.new import new_pass
from graphpass.errors import UsageError


def test_the_pass_and_its_test_are_short(tmp_path):
    made = new_pass("fuse-my-swish", tmp_path / "made")
    for file, most in (("graphpass_fuse_my_swish/fuse_my_swish.py", 15), ("tests/test_fuse_my_swish.py", 12)):
        code = re.sub(r'""".*?"""', "", (made / file).read_text(), flags=re.DOTALL)
        lines = [line for line in code.splitlines() if line.strip() and "import" not in line]
        assert len(lines) <= most


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Fuse", "is not in kebab-case"),
        ("make-stateful", "pass make-stateful exists"),
        ("x", "made exists"),
        ("class", "is a keyword"),
    ],
)
def test_bad_names_are_refused(tmp_path, name, words):
    (tmp_path / "made").mkdir()
    with pytest.raises(UsageError, match=f"GP276: .*{words}"):
        new_pass(name, tmp_path / "made")
