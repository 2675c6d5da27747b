"""``graphpass.toml``: its form and its schema."""

import json
from pathlib import Path

import jsonschema
import pytest

from graphpass.errors import GraphpassError, ReadError, UsageError
from graphpass.matrix.cells import Budgets, Settings
from graphpass.matrix.config import find_config, load_config, schema, size_of
from graphpass.matrix.plan import cells_of


def configured(text):
    Path("graphpass.toml").write_text(text)
    return load_config(find_config(None))


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


def test_one_that_may_not_be_read(project, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(ReadError, match=r"GP114: cannot read the configuration exports: Permission denied"):
        find_config(Path("exports"))
    with pytest.raises(UsageError, match=r"GP232: no configuration in .* or above"):
        find_config(None)


MODEL = "[[models]]\npath = 'one'\n"

#: Texts that the schema refuses, with line and words of the message.
ILL_FORMED = [
    (f"{MODEL}targets = ['cpu']\nname = '..'\n", 4, "models[0].name: expected a value such as 'llama', got '..'"),
    (f"{MODEL}targets = ['cpu']\noutput = \"a\\u0000\"\n", 4, "models[0].output has a NUL character: 'a\\x00'"),
    (f"{MODEL}targets = ['cpu']\ntimeout = nan\n", 4, "models[0].timeout: expected a number, got nan"),
    (f"{MODEL}targets = ['cpu']\ntimeout = '1h'\n", 4, "models[0].timeout: expected a number of seconds, got '1h'"),
    (f"{MODEL}targets = ['cpu']\ntimeout = 0\n", 4, "models[0].timeout: expected more than 0, got 0"),
    ("", 1, "the configuration lacks models"),
    (f"{MODEL}targts = ['cpu']\n", 3, "models[0] has no key 'targts'; did you mean targets?"),
    (f"{MODEL}[reports]\npdf = 'x'\n", 4, "reports has no key 'pdf'; its keys are html, json, junit, markdown, sarif"),
    (f"{MODEL}\n[[models]]\ntargets = ['cpu']\n", 4, "models[1] lacks path"),
    ("models = 3\n", 1, "models: expected an array, got 3"),
    (f"{MODEL}targets = []\n", 3, "models[0].targets: expected at least one, got []"),
    (f"{MODEL}targets = ['']\n", 3, "models[0].targets[0]: expected text, got ''"),
    (f"{MODEL}targets = 'cpu'\n", 3, "models[0].targets: expected an array, got 'cpu'"),
    (f"{MODEL}targets = [\n 'cpu',\n 3,\n]\n", 5, "models[0].targets[1]: expected a string or a table, got 3"),
    (f"{MODEL}targets = [\n 'cpu',\n {{target = 'cpu', verfy = 1}},\n]\n", 5, "no key 'verfy'; did you mean verify?"),
    (f"{MODEL}targets = [{{target = 'cpu', verify = 1}}]\n", 3, "targets[0].verify: expected true or false, got 1"),
    (f"steps = 1\n{MODEL}targets = ['cpu']\n", 1, "the configuration has no key 'steps'"),
    (f"{MODEL}targets = ['cpu']\nweights = 'link'\n", 4, "weights: expected auto, share or copy, got 'link'"),
    (f"{MODEL}targets = ['cpu']\n[models.budgets]\nbytes = '2 gigs'\n", 5, "a value such as '2 GiB', got '2 gigs'"),
    (f"fail-on = 'note'\n{MODEL}targets = ['cpu']\n", 1, "fail-on: expected error, warning or changed, got 'note'"),
    (f"{MODEL}targets = ['cpu']\nsteps = -1\n", 4, "models[0].steps: expected 0 or more, got -1"),
    (f"{MODEL}targets = ['cpu']\ncaches = ['x']\n", 4, "caches[0]: expected a value such as 'past_0=kv,sequence=2'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "words"), ILL_FORMED)
def test_settings_against_the_schema_are_refused(project, text, line, words):
    with pytest.raises(UsageError) as raised:
        configured(text)
    assert raised.value.id == "GP231"
    assert raised.value.message.startswith(f"graphpass.toml:{line}: ")
    assert words in raised.value.message


def test_an_item_of_the_wrong_value_has_one_message(project):
    with pytest.raises(UsageError) as raised:
        configured(f"fail-on = ['note']\n{MODEL}targets = ['cpu']\n")
    assert raised.value.message == "graphpass.toml:1: fail-on[0]: expected error, warning or changed, got 'note'"


def test_invalid_toml_is_refused(project):
    with pytest.raises(UsageError, match=r"graphpass\.toml:2: not TOML: "):
        configured("output = 'a'\nmodels = ?\n")
    with pytest.raises(UsageError, match=r"graphpass\.toml:2: not TOML: ") as raised:
        configured('[[models]]\npath = "exports\\llama"\n')
    assert raised.value.hint == "in a path write / between folders, or put it in single quotes"
    with pytest.raises(UsageError, match=r"graphpass\.toml: not TOML: the nesting is too deep"):
        configured(f"models = {'[' * 20000}{']' * 20000}\n")
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
