"""Angles of query and keys compared for every position: faults that no prompt triggers are found."""

import re

import pytest
from mutants import hidden  # noqa: F401 - registers its faults
from mutants.faults import faults
from support.loaded import converted, exported

from graphpass.analysis.equations.angles import find_angles, find_learned_positions
from graphpass.ir.bodies import inlined
from graphpass.verify import angles, compare
from graphpass.verify.angles import compare_angles
from graphpass.verify.difference import Tolerance
from graphpass.verify.verdicts import Equal, Open, Unlike

TOLERANCE = Tolerance(1e-3, 1e-3)


def verdicts(reference, candidate, find=find_angles):
    found = [inlined(model).analysis(find) for model in (reference, candidate)]
    return [compare_angles(*pair, TOLERANCE) for pair in zip(*found, strict=True)]


@pytest.mark.parametrize("name", ["llama", "phi3", "gptj", "qwen3_moe", "gemma3_text"])
@pytest.mark.parametrize("target", ["cpu", "gpu", "ort"])
def test_results_are_equal_at_every_position(name, target):
    reference = exported(f"{name}/onnx")
    found = verdicts(reference, converted(reference, target).model)
    assert len(found) >= 2
    assert all(isinstance(one, Equal) for one in found), found


@pytest.mark.parametrize(("name", "rows"), [("gpt2", 256), ("opt", 130), ("gpt_neo", 128)])
def test_learned_positions_are_equal_up_to_the_end_of_their_table(name, rows):
    reference = exported(f"{name}/onnx")
    assert verdicts(reference, converted(reference).model, find_learned_positions) == [Equal("any", rows)]


def faulty(model, kind):
    fault = next(fault for fault in faults(model) if fault.kind == kind)
    return fault.put_into(model)


@pytest.mark.parametrize("form", ["onnx", "ov-stateless"])
@pytest.mark.parametrize(
    ("kind", "positions"),
    [
        ("positions from 3000 to 3899 one more", range(3000, 3900)),
        ("positions clamped at 40000", range(40_001, 2**31)),
        ("positions rounded to f16", range(2049, 2**31)),
        ("positions rounded to bf16", range(257, 2**31)),
    ],
)
def test_other_positions_are_found_with_an_example(form, kind, positions):
    model = exported(f"llama/{form}")
    for verdict in verdicts(model, faulty(model, kind)):
        assert isinstance(verdict, Unlike)
        told = re.search(
            r"position (\d+) has the angles of position (\d+), in the candidate of position (\d+)", verdict.reason
        )
        last = verdict.step.total - 1
        assert last in positions, verdict
        assert told is None or (int(told[1]) == int(told[2]) != int(told[3]))


@pytest.mark.parametrize("kind", ["an angle's sign", "cosines and sines exchanged"])
def test_angles_of_one_layer(kind):
    """Sets of numbers stay the same: whole models show these."""
    model = exported("llama/onnx")
    assert not compare(model, faulty(model, kind), steps=1).passed


def test_a_row_of_a_table():
    model = exported("llama/onnx")
    result = faulty(converted(model, "ort").model, "rows 300 to 329 of a table of positions negated")
    (found,) = [one for one in verdicts(model, result) if not isinstance(one, Equal)]
    assert isinstance(found, Unlike)
    assert found.step.total == 301


def test_tables_without_rows_prove_nothing():
    """A sweep over zero positions is undecided."""
    assert isinstance(angles._swept([[], []], 0, TOLERANCE), Open)
