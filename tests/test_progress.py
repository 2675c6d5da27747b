"""Follow stages as a watcher, and tell the times of passes and analyses apart."""

import pytest
from support.models import export

from graphpass.engine.manager import PassManager
from graphpass.engine.pipeline import parse
from graphpass.errors import GraphpassError
from graphpass.io import load, save
from graphpass.progress import Clock, advance, clocked, counting, expect, stage, timed, watched
from graphpass.verify import compare


class Noting:
    """Notes each event with the stage's text, part and counts."""

    def __init__(self):
        self.events = []

    def began(self, stage):
        self.events.append(f"begin {stage.text}")

    def moved(self, stage):
        self.events.append(f"{stage.at} {stage.done}/{stage.total} {stage.unit}".strip())

    def ended(self, stage):
        self.events.append(f"end {stage.text}")

    @property
    def counts(self):
        return [event for event in self.events if "/" in event]


def test_nothing_is_reported_without_an_observer():
    with stage("work"):
        expect(2, "parts")
        advance()


def test_counts_belong_to_the_innermost_stage():
    noting = Noting()
    with watched(noting), stage("outer"):
        expect(1, "models")
        with stage("inner"):
            expect(3, "parts")
            advance(2, "b")
        advance()
    assert noting.events == [
        *("begin outer", "0/1 models", "begin inner", "0/3 parts", "b 2/3 parts", "end inner", "1/1 models"),
        "end outer",
    ]


def test_items_count_in_a_stage_of_their_own():
    noting = Noting()
    with watched(noting), stage("outer"), counting("inner", "abc", "letters") as letters:
        assert list(letters) == ["a", "b", "c"]
    counts = [f"{done}/3 letters" for done in (0, 1, 2, 3)]
    assert noting.events == ["begin outer", "begin inner", *counts, "end inner", "end outer"]


def test_many_items_make_few_reports():
    noting = Noting()
    with watched(noting), stage("outer"), counting("inner", range(12345), "numbers") as numbers:
        assert sum(1 for _ in numbers) == 12345
    assert len(noting.counts) < 110
    assert noting.counts[-1] == "12345/12345 numbers"


def test_items_inside_other_counts_do_not_count():
    noting = Noting()
    with watched(noting), stage("outer"):
        expect(1, "passes")
        with counting("inner", "abc", "letters") as letters:
            assert list(letters) == ["a", "b", "c"]
    assert noting.events == ["begin outer", "0/1 passes", "end outer"]


def test_a_stage_ends_though_its_work_fails():
    noting = Noting()
    with watched(noting), pytest.raises(ZeroDivisionError), stage("work"):
        _ = 1 / 0
    assert noting.events == ["begin work", "end work"]


def test_an_inner_watcher_silences_the_outer_one():
    noting = Noting()
    with watched(noting), watched(None), stage("work"):
        advance()
    assert noting.events == []


def test_a_pipeline_names_the_pass_in_work():
    noting = Noting()
    with watched(noting):
        PassManager(parse("to-openvino,make-stateful")).run(load(export("llama", "onnx")))
    assert noting.events == [
        *("begin running the pipeline", "0/2 passes", "to-openvino 0/2 passes", "to-openvino 1/2 passes"),
        *("make-stateful 1/2 passes", "make-stateful 2/2 passes", "end running the pipeline"),
    ]


def test_a_failing_pipeline_ends_its_stage():
    noting = Noting()
    with watched(noting), pytest.raises(GraphpassError, match="GP301"):
        PassManager(parse("to-openvino,to-openvino")).run(load(export("llama", "onnx")))
    assert noting.events[-2:] == ["to-openvino 1/2 passes", "end running the pipeline"]


def test_writing_counts_the_bytes_of_weights(tmp_path):
    model = load(export("llama", "ov-stateless"))
    (source,) = model.weight_files
    noting = Noting()
    with watched(noting):
        save(model, tmp_path / "m.xml", weights="copy")
    assert noting.events[0] == "begin writing m.xml"
    assert noting.counts[-1] == f"{source.size}/{source.size} bytes"


def test_comparing_counts_its_steps():
    model = load(export("llama", "ov-stateful"))
    noting = Noting()
    with watched(noting), stage("verifying"):
        compared = compare(model, model, steps=2)
    total = sum(run.steps + 1 for run in compared.sequences)
    assert next(count for count in noting.counts if "steps" in count) == f"0/{total} steps"
    assert [one for one in noting.counts if one.endswith("steps")][-1].endswith(f"{total}/{total} steps")
    assert noting.counts[-1].endswith("lengths")


def test_a_clock_separates_own_time_from_inner_time():
    clock = Clock()
    with clocked(clock):
        for _ in range(2):
            with timed("pass", "outer"), timed("analysis", "inner"):
                pass
        PassManager(parse("to-openvino,make-stateful")).run(load(export("llama", "onnx")))
    runs = {(timing.kind, timing.name): timing.runs for timing in clock.timings}
    assert runs["pass", "outer"] == runs["analysis", "inner"] == 2
    assert runs["pass", "make-stateful"] == 1
    assert runs["analysis", "analysis.caches.inventory.analyze"] == 1
    assert all(timing.seconds >= 0 for timing in clock.timings)


def test_nothing_is_timed_without_a_clock():
    clock = Clock()
    with timed("pass", "none"):
        pass
    assert clock.timings == ()
