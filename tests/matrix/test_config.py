"""``graphpass.toml``: its form, its schema, and the cells that it means."""

import json
from pathlib import Path

import jsonschema
import pytest

from graphpass.errors import GraphpassError, UsageError
from graphpass.matrix.cells import Budgets, Settings
from graphpass.matrix.config import find_config, load_config, schema, size_of
from graphpass.matrix.plan import cells_of
from graphpass.matrix.selection import selected
from graphpass.matrix.toml_lines import line_of

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


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("llama", "qwen3"):
        (tmp_path / "exports" / name / "onnx").mkdir(parents=True)
    Path("fused.toml").write_text('[[pass]]\nname = "fuse-attention"\n')
    return tmp_path


def cells(text, select=()):
    Path("graphpass.toml").write_text(text)
    return selected(cells_of(load_config(find_config(None))), select)


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


def test_cells_are_selected_by_pattern(project):
    assert [cell.id for cell in cells(GOOD, ["*:npu*", "llama:gpu{cache=reorder}"])] == [
        "llama:gpu{cache=reorder}",
        "llama:npu-long",
        "qwen3:npu-long",
    ]
    with pytest.raises(UsageError, match="no cell is called lama") as raised:
        cells(GOOD, ["lama:*"])
    assert raised.value.id == "GP234"


def test_a_pyproject_holds_the_configuration(project, monkeypatch):
    Path("pyproject.toml").write_text("[tool.graphpass]\nmodels = [{path = 'one', targets = ['cpu']}]\n")
    (project / "deeper").mkdir()
    monkeypatch.chdir(project / "deeper")
    config = load_config(find_config(None))
    assert [(cell.id, cell.source) for cell in cells_of(config)] == [("one:cpu", str(project / "one"))]
    Path(project, "pyproject.toml").write_text("[tool.graphpass]\nmodels = [{pth = 'one'}]\n")
    with pytest.raises(UsageError, match=r"pyproject.toml:2: models\[0\] has no key 'pth'; did you mean path"):
        load_config(find_config(None))


def test_a_missing_configuration(tmp_path):
    with pytest.raises(GraphpassError) as raised:
        find_config(tmp_path)
    assert raised.value.id == "GP232"
    with pytest.raises(GraphpassError) as raised:
        find_config(tmp_path / "no.toml")
    assert raised.value.id == "GP114"


MODEL = "[[models]]\npath = 'one'\n"

#: Texts that the schema refuses, with line and words of the message.
ILL_FORMED = [
    (f"{MODEL}targets = ['cpu']\nname = '..'\n", 4, "models[0].name: '..' does not match"),
    (f"{MODEL}targets = ['cpu']\noutput = \"a\\u0000\"\n", 4, "models[0].output has a NUL character: 'a\\x00'"),
    (f"{MODEL}targets = ['cpu']\ntimeout = nan\n", 4, "models[0].timeout takes a number, not nan"),
    ("", 0, "the configuration lacks models"),
    (f"{MODEL}targts = ['cpu']\n", 3, "models[0] has no key 'targts'; did you mean targets?"),
    (f"{MODEL}\n[[models]]\ntargets = ['cpu']\n", 4, "models[1] lacks path"),
    (f"{MODEL}targets = 'cpu'\n", 3, "models[0].targets takes array, not 'cpu'"),
    (f"{MODEL}targets = [\n 'cpu',\n 3,\n]\n", 5, "models[0].targets[1] takes string or object, not 3"),
    (f"{MODEL}targets = [\n 'cpu',\n {{target = 'cpu', verfy = 1}},\n]\n", 5, "no key 'verfy'; did you mean verify?"),
    (f"steps = 1\n{MODEL}targets = ['cpu']\n", 1, "the configuration has no key 'steps'"),
    (f"{MODEL}targets = ['cpu']\nweights = 'link'\n", 4, "models[0].weights takes auto, share, copy, not 'link'"),
    (f"{MODEL}targets = ['cpu']\n[models.budgets]\nbytes = '2 gigs'\n", 5, "budgets.bytes: '2 gigs' does not match"),
    (f"fail-on = 'note'\n{MODEL}targets = ['cpu']\n", 1, "fail-on takes error, warning, changed, not 'note'"),
    (f"{MODEL}targets = ['cpu']\nsteps = -1\n", 4, "models[0].steps: -1 is less than the minimum of 0"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "words"), ILL_FORMED)
def test_settings_against_the_schema_are_refused(project, text, line, words):
    with pytest.raises(UsageError) as raised:
        cells(text)
    assert raised.value.id == "GP231"
    assert raised.value.message.startswith(f"graphpass.toml:{line}: ")
    assert words in raised.value.message


@pytest.mark.parametrize(
    ("text", "error_id", "line", "words"),
    [
        (MODEL, "GP231", 1, "neither targets nor pipelines"),
        (f"{MODEL}targets = [\n 'cpu',\n 'gpuu',\n]\n", "GP215", 5, "unknown target 'gpuu'"),
        (f"{MODEL}targets = ['gpu{{cache=no}}']\n", "GP213", 3, "takes beam | reorder"),
        (f"{MODEL}pipelines = [{{name = 'a', pipeline = 'fuse'}}]\n", "GP211", 3, "unknown pass 'fuse'"),
        (f"{MODEL}targets = ['cpu', 'cpu']\n", "GP233", 1, "both write to converted/one/cpu"),
        (f"output = 'out'\n{MODEL}targets = ['cpu', 'gpu']\n", "GP233", 2, "one:cpu and one:gpu both write to out"),
        ("[[models]]\npath = 'no/*'\ntargets = ['cpu']\n", "GP231", 2, "nothing matches no/*"),
        (
            "[[models]]\npath = 'exports/*'\nname = 'x'\ntargets = ['cpu']\n",
            "GP231",
            3,
            "one name cannot be that of all",
        ),
    ],
)
def test_contradictory_settings_are_refused(project, text, error_id, line, words):
    with pytest.raises(UsageError) as raised:
        cells(text)
    assert raised.value.id == error_id
    assert raised.value.message.startswith(f"graphpass.toml:{line}: ")
    assert words in raised.value.message


def test_invalid_toml_is_refused(project):
    with pytest.raises(UsageError, match=r"graphpass\.toml: not TOML: .*line 2"):
        cells("output = 'a'\nmodels = ?\n")
    with pytest.raises(UsageError, match=r"graphpass\.toml: not TOML: it nests too deep"):
        cells(f"models = {'[' * 20000}{']' * 20000}\n")
    Path("graphpass.toml").write_bytes(b"\xff")
    with pytest.raises(GraphpassError, match="not text in UTF-8"):
        load_config(Path("graphpass.toml"))


def test_the_schema_is_valid_and_lists_all_settings():
    jsonschema.Draft202012Validator.check_schema(schema())
    told = schema()["$defs"]
    for name in ("model", "target", "pipeline"):
        known = {key.replace("-", "_") for key in told[name]["properties"]}
        assert set(Settings.__slots__) <= known
    assert {key.replace("-", "_") for key in schema()["properties"]["defaults"]["properties"]} == set(
        Settings.__slots__
    )
    assert {key.replace("-", "_") for key in told["budgets"]["properties"]} == set(Budgets.__slots__)
    assert json.dumps(schema())


def test_sizes_are_read_in_units():
    assert [size_of(text) for text in (7, "7 B", "1.5KB", "2 MiB", "1GiB")] == [7, 7, 1500, 2 << 20, 1 << 30]


def test_entries_are_located_by_line():
    assert line_of(GOOD, ("models", 0)) == 9
    assert line_of(GOOD, ("models", 0, "targets", 1)) == 13
    assert line_of(GOOD, ("models", 0, "targets", 2, "steps")) == 14
    assert line_of(GOOD, ("models", 1, "pipelines", 0, "pipeline")) == 20
    assert line_of(GOOD, ("defaults", "budgets", "bytes")) == 7
