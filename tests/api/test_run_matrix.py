"""graphpass.run_matrix returns each cell."""

import json

from support.commands import in_process
from support.models import export

import graphpass


def test_run_matrix_returns_each_cell(tmp_path):
    config = tmp_path / "graphpass.toml"
    model = json.dumps(str(export("llama", "onnx")))
    config.write_text(f'output = "out/{{model}}"\n[[models]]\nname = "m"\npath = {model}\ntargets = ["cpu"]\n')
    matrix = graphpass.run_matrix(config, select=["m:*"], jobs=1)
    assert matrix.exit_code == 0
    assert matrix.to_json()["counts"]["converted"] == 1
    matrix.write({"json": tmp_path / "report.json"})
    assert json.loads((tmp_path / "report.json").read_text())["exit_code"] == 0
    assert "1 cell: 1 up to date" in str(graphpass.run_matrix(tmp_path))


def test_run_matrix_reads_the_baseline_of_the_command(capfd, tmp_path):
    """It read the file of the key `baseline` alone."""
    (tmp_path / "graphpass.toml").write_text("[[models]]\npath = 'gone'\ntargets = ['cpu']\n")
    assert graphpass.run_matrix(tmp_path).exit_code == 1
    assert in_process(capfd, "ci", tmp_path, "--update-baseline").code == 0
    assert graphpass.run_matrix(tmp_path).exit_code == 0
