"""`--require proven` and `require = "proven"`: results that numbers alone hold are refused."""

from __future__ import annotations

import json

from support.commands import in_process
from support.models import export


def test_require_refuses_a_result_compared_by_numbers(capfd, tmp_path):
    out, options = tmp_path / "out", ("--target", "ort", "--require", "proven")
    done = in_process(capfd, "convert", export("deepseek_v3", "onnx"), "-o", out, *options)
    assert (done.code, out.exists()) == (1, False)
    assert "GP606" in done.err
    assert "compared by numbers from" in done.err


def test_require_applies_to_cells_of_a_matrix(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    models = [
        f"[[models]]\nname = '{name}'\npath = '{export(name, 'onnx')}'\ntargets = ['{target}']\n"
        for name, target in (("llama", "cpu"), ("deepseek_v3", "ort"))
    ]
    defaults = "[defaults]\nsteps = 1\nrequire = 'proven'\n"
    (tmp_path / "graphpass.toml").write_text(defaults + "".join(models))
    done = in_process(capfd, "ci", "--format", "json")
    cells = {cell["cell"]["model"]: cell for cell in json.loads(done.out)["cells"]}
    assert done.code == 1
    assert cells["llama"]["state"] == "converted"
    assert "GP606" in json.dumps(cells["deepseek_v3"])
