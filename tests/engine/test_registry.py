from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from support.plugins import distribution, plugin_paths

import graphpass
from graphpass.engine import registry
from graphpass.engine.passes import Done, Pass
from graphpass.errors import UsageError
from graphpass.ir.model import Model
from graphpass.targets.cpu.target import CPU

PASSES, TARGETS = "graphpass.passes", "graphpass.targets"


@dataclass(frozen=True)
class Mine(Pass[Model]):
    name: ClassVar[str] = "mine"

    def run(self, model):
        return Done()


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch):
    monkeypatch.setattr(registry._PASSES, "registered", {})


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Makes a distribution with these entry points discoverable."""

    def install(name, groups):
        monkeypatch.syspath_prepend(distribution(tmp_path / name, name, groups))

    return install


@pytest.fixture
def sample(tmp_path, monkeypatch):
    for path in plugin_paths("sample_plugin", tmp_path):
        monkeypatch.syspath_prepend(path)


def test_built_in_passes_come_from_entry_points():
    names = graphpass.pass_names()
    assert {"to-openvino", "fuse-attention", "make-stateful", "make-stateless", "insert-reorder"} <= set(names)
    assert list(names) == sorted(names)
    for name in names:
        assert graphpass.get_pass(name).name == name
    assert "cpu" in graphpass.target_names()
    assert graphpass.get_target("cpu") == CPU()


def test_listing_names_imports_nothing(tmp_path):
    program = (
        "import sys; from graphpass.engine import registry; names = registry.pass_names() + registry.target_names();"
        "assert 'sample-scale' in names and 'sample' in names and 'make-stateful' in names, names;"
        "lazy = ('graphpass.passes.', 'graphpass_sample', 'graphpass.targets');"
        "loaded = [name for name in sys.modules if name.startswith(lazy) and not name.endswith('.catalogue')];"
        "assert not loaded, loaded"
    )
    path = [str(folder) for folder in plugin_paths("sample_plugin", tmp_path)]
    command = f"import sys; sys.path[:0] = {path!r}; {program}"
    subprocess.run([sys.executable, "-c", command], check=True)


@pytest.mark.usefixtures("sample")
def test_a_third_party_registers_as_the_built_ins_do():
    assert "sample-scale" in graphpass.pass_names()
    (step,) = graphpass.parse("sample-scale{factor=2}")
    assert step.factor == 2.0
    assert type(step).__module__ == "graphpass_sample.scale"
    assert "sample" in graphpass.target_names()
    assert graphpass.get_target("sample").description == "Somebody's own runtime."


def test_a_duplicate_name_names_both_owners(install):
    install("other-passes", {PASSES: {"make-stateful": "other:MakeStateful"}, TARGETS: {"cpu": "other:CPU"}})
    for ask, name in (
        (lambda: graphpass.get_pass("make-stateful"), "make-stateful"),
        (graphpass.pass_names, "make-stateful"),
        (lambda: graphpass.get_target("cpu"), "cpu"),
        (graphpass.target_names, "cpu"),
    ):
        with pytest.raises(UsageError, match="GP220") as caught:
            ask()
        assert repr(name) in caught.value.message
        assert "distribution graphpass (graphpass." in caught.value.message
        assert "distribution other-passes (other:" in caught.value.message
    assert graphpass.get_pass("to-openvino").name == "to-openvino"


def test_an_unimportable_plugin_names_its_distribution(install):
    install("broken-passes", {PASSES: {"broken": "no_such_module:Broken"}})
    assert "broken" in graphpass.pass_names()
    assert graphpass.get_pass("make-stateful").name == "make-stateful"
    with pytest.raises(UsageError, match=r"GP221.*broken-passes.*ModuleNotFoundError.*no_such_module"):
        graphpass.get_pass("broken")


def test_a_plugin_raising_on_import(install, tmp_path):
    install("angry-passes", {PASSES: {"angry": "angry_passes:Angry"}})
    (tmp_path / "angry-passes" / "angry_passes.py").write_text("raise RuntimeError('no license')")
    with pytest.raises(UsageError, match=r"GP221.*angry-passes.*RuntimeError: no license"):
        graphpass.get_pass("angry")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("graphpass.passes.caches.make_stateful:MakeStateful", "its name is 'make-stateful'"),
        ("graphpass.ir.model:Model", "is not a Pass"),
        ("graphpass.io:load", "is not a Pass"),
    ],
)
def test_an_entry_point_of_a_wrong_class(install, value, words):
    install("odd-passes", {PASSES: {"odd": value}})
    with pytest.raises(UsageError, match=f"GP222.*odd-passes.*'odd'.*{words}"):
        graphpass.get_pass("odd")


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UsageError, match="GP211: unknown pass 'make-statefull'") as caught:
        graphpass.get_pass("make-statefull")
    assert caught.value.hint == "did you mean make-stateful?"
    for get, name, meant in (
        (graphpass.get_pass, "MakeStateful", "make-stateful"),
        (graphpass.get_target, "CPU", "cpu"),
    ):
        with pytest.raises(UsageError) as caught:
            get(name)
        assert caught.value.hint == f"did you mean {meant}?"
    with pytest.raises(UsageError, match="GP215: unknown target 'tpu'"):
        graphpass.get_target("tpu")
    with pytest.raises(UsageError) as caught:
        graphpass.get_pass("zzz")
    assert caught.value.hint == "graphpass passes lists the installed ones"


def test_register_makes_a_pass_known():
    assert registry.register(Mine) is Mine
    assert "mine" in graphpass.pass_names()
    assert graphpass.get_pass("mine") is Mine
    assert graphpass.parse("mine") == (Mine(),)


def test_registering_the_same_class_again_replaces_it():
    def define():
        @registry.register
        @dataclass(frozen=True)
        class Again(Mine):
            name: ClassVar[str] = "again"

        return Again

    first, second = define(), define()
    assert first is not second
    assert graphpass.get_pass("again") is second


def test_register_refuses_a_taken_name():
    @dataclass(frozen=True)
    class Stateful(Mine):
        name: ClassVar[str] = "make-stateful"

    with pytest.raises(UsageError, match=r"GP220.*distribution graphpass .*this program"):
        registry.register(Stateful)
    assert graphpass.get_pass("make-stateful") is not Stateful


@dataclass(frozen=True)
class WithoutDefault(Mine):
    name: ClassVar[str] = "without-default"
    count: int


@dataclass(frozen=True)
class OddOption(Mine):
    name: ClassVar[str] = "odd-option"
    table: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (int, "has no name"),
        (CPU, "is not a Pass"),
        (WithoutDefault, "field count .* has no default"),
        (OddOption, "field table .* cannot be an option"),
    ],
)
def test_register_refuses_other_classes(what, words):
    with pytest.raises(UsageError, match=f"GP222.*{words}"):
        registry.register(what)
    assert getattr(what, "name", "?") not in registry._PASSES.registered
