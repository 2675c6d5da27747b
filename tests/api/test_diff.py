"""graphpass.diff prints as the command."""

from support.commands import in_process
from support.models import export

import graphpass


def test_diff_prints_as_the_command(capfd):
    models = export("llama", "ov-stateless"), export("llama", "ov-stateful")
    found = graphpass.diff(*models)
    done = in_process(capfd, "diff", *models)
    assert (found.same, done.code) == (False, 1)
    assert str(found) == done.out.rstrip("\n")
    assert found.to_json()["same"] is False
    assert graphpass.diff(found.before, found.before).same
