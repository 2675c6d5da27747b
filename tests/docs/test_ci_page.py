"""The configurations of docs/ci.md end as the page says."""

import json
import re
from pathlib import Path

from support.commands import in_process
from support.models import export

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ci.md").read_text("utf-8")


def test_the_expected_error_is_the_one_that_the_target_raises(capfd, tmp_path):
    (shown,) = [block for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "expect" in block]
    config = tmp_path / "graphpass.toml"
    config.write_text(shown.replace("exports/gemma2", str(export("gemma2", "onnx"))))
    done = in_process(capfd, "ci", config, "--select", "*:paged", "--format", "json")
    (cell,) = json.loads(done.out)["cells"]
    assert (done.code, cell["verdict"], cell["cell"]["expect"]) == (0, "known", "GP350")
