"""Cells in processes, bounded by number and memory."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matrix.cells import Positions, cell
from support.models import export

from graphpass.machine import available_memory, usable_cores
from graphpass.matrix.cells import CellResult, Settings
from graphpass.matrix.execution import Processes, estimate
from graphpass.matrix.progress import Progress
from graphpass.matrix.run import run_matrix


class Counting(Progress):
    """Counts cells that run at one time."""

    def __init__(self):
        self.running, self.most, self.order = set(), 0, []

    def started(self, cell):
        self.running.add(cell.id)
        self.order.append(cell.id)
        self.most = max(self.most, len(self.running))

    def ended(self, result):
        self.running.discard(result.cell.id)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "fit", "most"), [(3, 2, 2), (3, 0.5, 1), (1, 9, 1)])
def test_cells_run_as_memory_and_jobs_allow(cells, jobs, fit, most):
    counting = Counting()
    run = run_matrix(cells, Processes(jobs, int(fit * estimate(cells[0]))), counting)
    assert counting.most == most
    assert counting.order == [one.id for one in cells]
    assert [result.problems[0].rule for result in run.results] == ["GP104"] * 3
    assert most > 1 or not Path(cells[0].output).parent.exists()


@pytest.mark.slow
def test_cells_report_their_stages_from_their_processes(tmp_path):
    output = str(tmp_path / "out")
    source = str(export("llama", "ov-stateless"))
    settings = Settings(steps=1, picture=False)
    one = replace(cell(settings=settings), source=source, output=output, published=output)
    one = replace(one, target=None, pipeline="fuse-attention,make-stateful")
    positions = Positions()
    assert run_matrix([one], Processes(1, 2**33), positions).exit_code == 0
    told = [at.stage for at in positions.met["m:cpu"]]
    assert {"running the pipeline", "verifying"} <= {stage.text for stage in told}
    assert {"make-stateful", "fuse-attention"} <= {stage.at for stage in told}
    last = positions.met["m:cpu"][-1].whole
    assert (last.text, last.unit, last.total) == ("converting", "stages", 6)
    assert last.done >= 5
    assert all(at.memory > 2**20 for at in positions.met["m:cpu"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks the server up in /proc")
def test_an_interrupt_does_not_reach_the_fork_server(cells):
    """It hung if that came while it imported OpenVINO, and so did the run."""
    script = (
        "import re\nfrom multiprocessing.forkserver import _forkserver\nfrom pathlib import Path\n"
        "from graphpass.matrix.execution import Processes\nfrom graphpass.matrix.progress import Progress\n"
        "from graphpass.matrix.run import run_matrix\nfrom matrix.cells import cell\n"
        "if __name__ == '__main__':\n"
        "    run_matrix([cell()], Processes(1, 2**33), Progress())\n"
        "    status = Path(f'/proc/{_forkserver._forkserver_pid}/status').read_text()\n"
        "    print(int(re.search(r'SigBlk:\\s*(\\w+)', status)[1], 16) & 2)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    file = Path(cells[0].source) / "script.py"
    file.write_text(script)
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "2\n", done.stderr


@pytest.mark.slow
def test_preloaded_modules_need_no_extra():
    """A module that cannot be imported ends the server's imports, and each cell goes through them again."""
    extras = ("distributed", "fsspec", "onnxruntime_genai", "openvino_genai", "pytest", "transformers")
    script = f"import sys; sys.modules.update(dict.fromkeys({extras})); import graphpass.matrix.preloaded"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_reports_after_a_failed_executor(cells):
    class Failing:
        def run(self, cells, progress):
            yield CellResult(cells[0], "converted")
            raise ConnectionError("the scheduler is gone")

    run = run_matrix(cells, Failing(), Progress())
    assert [result.state for result in run.results] == ["converted", "failed", "failed"]
    assert {problem.message for result in run.results for problem in result.problems} == {
        "internal error: ConnectionError: the scheduler is gone"
    }
    assert run.exit_code == 70


@pytest.mark.slow
def test_a_small_cell_overtakes_a_waiting_one(cells):
    os.truncate(Path(cells[0].source) / "model.onnx", 1000)
    os.truncate(Path(cells[2].source) / "model.onnx", 1000)
    counting = Counting()
    run_matrix(cells, Processes(2, 2 * estimate(cells[0])), counting)
    assert counting.order == [cells[0].id, cells[2].id, cells[1].id]


def test_cores_and_memory_are_estimated():
    assert usable_cores() >= 1
    assert available_memory() > 2**20
    weights = sum(file.stat().st_size for file in export("llama", "onnx").iterdir())
    assert estimate(replace(cell(), source=str(export("llama", "onnx")))) == 500 * 2**20 + 4 * weights
    assert estimate(replace(cell(), source="/nowhere")) == 500 * 2**20
