from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from hypothesis import given, strategies as st

from graphpass.engine import registry
from graphpass.engine.options import options_of
from graphpass.engine.passes import Done, Pass
from graphpass.engine.pipeline import format_passes, load_toml, parse, parse_toml
from graphpass.errors import ReadError, UsageError
from graphpass.ir.model import Model


@dataclass(frozen=True)
class Plain(Pass[Model]):
    name: ClassVar[str] = "plain"

    def run(self, model):
        return Done()


@dataclass(frozen=True)
class Everything(Plain):
    """Has options of every type.

    Longer words.

    Attributes:
        flag: Whether.
        count: How many,
            told on two lines.
        label (str): A word.

    Raises:
        ValueError: Never.
    """

    name: ClassVar[str] = "everything"

    flag: bool = True
    count: int = 3
    scale: float = 0.5
    label: str = "a label"
    mode: Literal["gpu", "none", "two words"] = "gpu"
    at_most: int | None = 7
    maybe_text: str | None = None
    sizes: tuple[int, ...] = (1,)
    words: tuple[str | None, ...] = ()
    maybe_sizes: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Positive(Plain):
    name: ClassVar[str] = "positive"
    count: int = 1

    def __post_init__(self):
        if self.count < 1:
            raise ValueError("count must be positive")


@pytest.fixture(scope="module", autouse=True)
def _passes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry._PASSES, "registered", {})
        for pass_class in (Plain, Everything, Positive):
            registry.register(pass_class)
        yield


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", ()),
        (" \n", ()),
        ("plain", (Plain(),)),
        ("plain,plain", (Plain(), Plain())),
        ("plain{}", (Plain(),)),
        ("everything{flag=false, count = -12}", (Everything(flag=False, count=-12),)),
        (" plain ,\n\teverything { scale = 1e3 } ", (Plain(), Everything(scale=1000.0))),
        ('everything{label="quoted, {text}"}', (Everything(label="quoted, {text}"),)),
        ('everything{label=none,maybe-text="none"}', (Everything(label="none", maybe_text="none"),)),
        ('everything{mode="two words",at-most=none}', (Everything(mode="two words", at_most=None),)),
        (
            "everything{mode=none,sizes=[],maybe-sizes=[1,inf]}",
            (Everything(mode="none", sizes=(), maybe_sizes=(1.0, math.inf)),),
        ),
        ('everything{words=[a,"b, c",none,"none"]}', (Everything(words=("a", "b, c", None, "none")),)),
        ('everything{label="line\\nquote\\" é"}', (Everything(label='line\nquote" é'),)),
    ],
)
def test_text_is_parsed(text, passes):
    assert parse(text) == passes


def test_canonical_text_omits_defaults():
    passes = parse('plain{},everything{ count=3, flag=false, label="x y", maybe-text=abc }')
    assert format_passes(passes) == 'plain,everything{flag=false,label="x y",maybe-text=abc}'


def everything(words, floats, nothing):
    """Any `Everything` with these words and floats; ``nothing`` generates what stands for no word."""
    return st.builds(
        Everything,
        flag=st.booleans(),
        count=st.integers(),
        scale=floats,
        label=words,
        mode=st.sampled_from(["gpu", "none", "two words"]),
        at_most=st.none() | st.integers(),
        maybe_text=nothing | words | st.just("none"),
        sizes=st.lists(st.integers()).map(tuple),
        words=st.lists(nothing | words | st.just("none")).map(tuple),
        maybe_sizes=st.none() | st.lists(floats).map(tuple),
    )


any_everything = everything(st.text(), st.floats(allow_nan=False), st.none())
pipelines = st.lists(st.just(Plain()) | any_everything, max_size=4).map(tuple)


@given(pipelines)
def test_passes_survive_text(passes):
    text = format_passes(passes)
    assert parse(text) == passes
    assert format_passes(parse(text)) == text


def error_of(text):
    try:
        parse(text)
    except UsageError as error:
        return error
    return None


@given(st.text(alphabet='ab{}[]=,"\\ \n', max_size=12))
def test_any_text_is_a_pipeline_or_an_error_with_a_place(text):
    error = error_of(text)
    assert error is None or (error.id in {"GP210", "GP211"} and "column" in error.message)


@pytest.mark.parametrize(
    ("text", "error_id", "caret", "words"),
    [
        ("plain,,plain", "GP210", 6, "expected the name of a pass"),
        ("plain,", "GP210", 6, "expected the name of a pass"),
        ("plain plain", "GP210", 6, "expected ','"),
        ("plain}", "GP210", 5, "expected ','"),
        ("everything{flag}", "GP210", 15, "expected '='"),
        ("everything{flag=}", "GP210", 16, "expected a value"),
        ("everything{flag=true", "GP210", 20, "expected ',' or '}'"),
        ('everything{label="x}', "GP210", 17, "missing closing quote"),
        ('everything{label="\\x"}', "GP210", 17, "backslash"),
        ("everything{sizes=[1}", "GP210", 19, "expected ',' or ']'"),
        ("everything{flag=true,flag=true}", "GP210", 21, "set twice"),
        ("plain, everthing", "GP211", 7, "unknown pass 'everthing'"),
        ("everything{flags=true}", "GP212", 11, "has no option 'flags'"),
        ("plain{x=1}", "GP212", 6, "has no option 'x'"),
        ("everything{flag=True}", "GP213", 16, "expected bool, got 'True'"),
        ('everything{count="1"}', "GP213", 17, "expected int"),
        ("everything{count=1.5}", "GP213", 17, "expected int"),
        ("everything{scale=nan}", "GP213", 17, "expected float"),
        ("everything{label=[a]}", "GP213", 17, "expected str"),
        ("everything{mode=cpu}", "GP213", 16, 'expected gpu | none | "two words"'),
        ("everything{sizes=1}", "GP213", 17, "expected [int, ...]"),
        ("everything{at-most=x}", "GP213", 19, "expected int | none"),
        ("plain,positive{count=0}", "GP213", 6, "count must be positive"),
    ],
)
def test_errors_name_the_place(text, error_id, caret, words):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.id == error_id
    message, line, carets = caught.value.message.split("\n")
    assert words in message
    assert f"column {caret + 1}" in message
    assert line == f"  {text}"
    assert carets.rstrip("^") == " " * (caret + 2)


def test_an_error_in_a_text_of_several_lines_names_the_line():
    with pytest.raises(UsageError) as caught:
        parse("plain,\n\tplan,\nplain")
    assert caught.value.message == "unknown pass 'plan' (line 2, column 2)\n   plan,\n   ^^^^"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("evrything", "did you mean everything?"),
        ("everything{at_most=1}", "did you mean at-most?"),
        ("everything{labell=1}", "did you mean label?"),
        ("everything{mode=gpuu}", "did you mean gpu?"),
        ("everything{flag=yes}", "one of true, false"),
        ("plain{x=1}", "plain has no options"),
    ],
)
def test_errors_suggest_known_names(text, hint):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert hint in caught.value.hint


def test_toml_is_parsed():
    text = """
        [[pass]]
        name = "plain"
        [[pass]]
        name = "everything"
        flag = false
        count = -12
        scale = 2
        label = "quoted, text"
        mode = "two words"
        at-most = "none"
        maybe-text = "none"
        sizes = [1, 2]
        words = ["a", "none"]
        maybe-sizes = [1.5, inf]
    """
    written = (
        'plain,everything{flag=false,count=-12,scale=2,label="quoted, text",mode="two words",at-most=none,'
        'maybe-text="none",sizes=[1,2],words=[a,"none"],maybe-sizes=[1.5,inf]}'
    )
    assert parse_toml(text) == parse(written)
    assert parse_toml("") == ()


@given(
    # JSON's strings are TOML's within printable ASCII; TOML has no word for nothing where a string could be meant.
    everything(
        st.text(st.characters(min_codepoint=32, max_codepoint=126)),
        st.floats(allow_nan=False, allow_infinity=False),
        st.nothing(),
    )
)
def test_passes_survive_toml(step):
    values = {option.name: getattr(step, option.field) for option in options_of(Everything)}
    lines = [f"{name} = {json.dumps('none' if value is None else value)}" for name, value in values.items()]
    assert parse_toml("\n".join(['[[pass]]\nname = "everything"', *lines])) == (step,)


@pytest.mark.parametrize(
    ("text", "error_id", "words"),
    [
        ("[[pass]", "GP214", "line 1"),
        ("passes = 1", "GP214", "'passes'"),
        ("pass = 1", "GP214", "[[pass]] tables"),
        ("pass = [1]", "GP214", "[[pass]] tables"),
        ("[[pass]]\ncount = 1", "GP214", "number 1 has no name"),
        ('[[pass]]\nname = "plain"\n[[pass]]\nname = "plan"', "GP211", "number 2: unknown pass 'plan'"),
        ('[[pass]]\nname = "everything"\ncounts = 1', "GP212", "number 1: everything has no option 'counts'"),
        ('[[pass]]\nname = "everything"\ncount = 1.5', "GP213", "number 1: option count of everything: expected int"),
        ('[[pass]]\nname = "everything"\ncount = 1979-05-27', "GP213", "expected int"),
        ('[[pass]]\nname = "everything"\nmode = {a = 1}', "GP213", "expected gpu"),
    ],
)
def test_wrong_toml_is_refused(text, error_id, words):
    with pytest.raises(UsageError) as caught:
        parse_toml(text)
    assert caught.value.id == error_id
    assert words in caught.value.message


def test_toml_is_read_from_a_file(tmp_path):
    file = tmp_path / "pipeline.toml"
    file.write_text('[[pass]]\nname = "plain"\n')
    assert load_toml(file) == (Plain(),)
    file.write_text('[[pass]]\nname = "plan"\n')
    with pytest.raises(UsageError, match=r"pipeline\.toml: .*number 1"):
        load_toml(file)
    with pytest.raises(ReadError, match="GP108"):
        load_toml(Path(tmp_path / "missing.toml"))


def test_options_are_documented():
    told = [(option.name, option.type.text, option.default_text, option.doc) for option in options_of(Everything)]
    assert told == [
        ("flag", "bool", "true", "Whether."),
        ("count", "int", "3", "How many, told on two lines."),
        ("scale", "float", "0.5", ""),
        ("label", "str", '"a label"', "A word."),
        ("mode", 'gpu | none | "two words"', "gpu", ""),
        ("at-most", "int | none", "7", ""),
        ("maybe-text", "str | none", "none", ""),
        ("sizes", "[int, ...]", "[1]", ""),
        ("words", "[str | none, ...]", "[]", ""),
        ("maybe-sizes", "[float, ...] | none", "none", ""),
    ]


def test_every_built_in_pass_can_be_written():
    for name in registry.pass_names():
        step = registry.get_pass(name)()
        assert format_passes([step]) == name
        assert parse(name) == (step,)
        options = ",".join(f"{option.name}={option.default_text}" for option in options_of(type(step)))
        assert parse(f"{name}{{{options}}}") == (step,)


def test_toml_with_a_byte_order_mark(tmp_path):
    (tmp_path / "p.toml").write_text('[[pass]]\r\nname = "plain"\r\n', encoding="utf-8-sig")
    assert load_toml(tmp_path / "p.toml") == (Plain(),)
