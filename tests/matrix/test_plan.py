"""The cells that a configuration means."""

from pathlib import Path

import pytest

from graphpass.errors import UsageError
from graphpass.matrix.cells import Budgets, Settings
from graphpass.matrix.config import find_config, load_config
from graphpass.matrix.plan import cells_of

GOOD = """\
output = "out/{model}/{target}"
fail-on = ["warning", "changed"]
memory = "2 GiB"

[defaults]
steps = 3
budgets = {operators = 1000, bytes = "1.5 MB"}

[[models]]
path = "exports/*/onnx"
targets = [
  "cpu",
  "gpu{cache=reorder}",
  {target = "npu", name = "npu-long", steps = 5, allow-unfused = true, budgets = {seconds = 9}},
]
caches = ["past_0=kv,sequence=2"]

[[models]]
path = "one/tiny.onnx"
pipelines = [{name = "fused", pipeline = "@fused.toml", verify = false, allow = ["/guard/Equal"]}]
"""


def cells(text):
    Path("graphpass.toml").write_text(text)
    return cells_of(load_config(find_config(None)))


def test_the_cells_of_a_matrix(project):
    found = cells(GOOD)
    names = [f"{model}:{label}" for model in ("llama", "qwen3") for label in ("cpu", "gpu{cache=reorder}", "npu-long")]
    assert [cell.id for cell in found] == [*names, "tiny:fused"]
    assert [cell.output for cell in found[:3]] == ["out/llama/cpu", "out/llama/gpu-cache-reorder", "out/llama/npu-long"]
    assert (found[3].source, found[-1].source) == ("exports/qwen3/onnx", "one/tiny.onnx")
    assert (found[-1].target, found[-1].pipeline, found[-1].published) == (None, "fuse-attention", "out/tiny/fused")
    budgets = Budgets(bytes=1_500_000, operators=1000)
    caches = ("past_0=kv,sequence=2",)
    assert found[0].settings == Settings(caches, steps=3, budgets=budgets)
    long = found[2].settings
    assert (long.steps, long.allow_unfused, long.budgets) == (5, True, Budgets(1_500_000, 1000, seconds=9))
    assert found[-1].settings == Settings(verify=False, steps=3, allow=("/guard/Equal",), budgets=budgets)


MODEL = "[[models]]\npath = 'one'\n"


@pytest.mark.parametrize(
    ("text", "error_id", "line", "words"),
    [
        (MODEL, "GP231", 1, "neither targets nor pipelines"),
        (f"{MODEL}targets = [\n 'cpu',\n 'gpuu',\n]\n", "GP215", 5, "unknown target 'gpuu'"),
        (f"{MODEL}targets = ['gpu{{cache=no}}']\n", "GP213", 3, "expected beam | reorder"),
        (f"{MODEL}pipelines = [{{name = 'a', pipeline = 'fuse'}}]\n", "GP211", 3, "unknown pass 'fuse'"),
        (f"{MODEL}targets = ['cpu', 'cpu']\n", "GP233", 1, "two cells are called one:cpu"),
        (f"{MODEL}targets = [{{target = 'cpu', expect = 'GP35'}}]\n", "GP216", 3, "there is no error GP35"),
        (f"{MODEL}pipelines = [{{name='a', pipeline='pack', expect='GP1'}}]\n", "GP216", 3, "there is no error GP1"),
        (f"output = 'out'\n{MODEL}targets = ['cpu', 'gpu']\n", "GP233", 2, "one:cpu and one:gpu both write to out"),
        ("[[models]]\npath = 'no/*'\ntargets = ['cpu']\n", "GP231", 2, "no file matches no/*"),
        (
            "[[models]]\npath = 'exports/*'\nname = 'x'\ntargets = ['cpu']\n",
            "GP231",
            3,
            "all models of exports/* would have the same name",
        ),
    ],
)
def test_contradictory_settings_are_refused(project, text, error_id, line, words):
    with pytest.raises(UsageError) as raised:
        cells(text)
    assert raised.value.id == error_id
    assert raised.value.message.startswith(f"graphpass.toml:{line}: ")
    assert words in raised.value.message
