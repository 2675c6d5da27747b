"""Tables that attention and hidden states read by position."""

from dataclasses import replace

import pytest

from graphpass.analysis.equations.angles import find_angles, find_last_row, find_learned_positions
from graphpass.analysis.symbolic import expressions as ex
from graphpass.testing import FAMILIES, run, tiny_model

ROTARY = sorted(name for name, family in FAMILIES.items() if family.positions == "rotary")


@pytest.mark.parametrize("name", ROTARY)
def test_each_rotary_attention_reads_cosines_and_sines_of_its_positions(name):
    found = tiny_model(name).analysis(find_angles)
    rotated = int(8 * FAMILIES[name].rotated)
    for angles in found:
        assert [table.axis for table in angles.tables] == [2, 2]
        assert sorted(form.args[0] for form in angles.forms) == ["cos", "sin"]
        assert len(angles.channels()) == rotated
        assert angles.misses == ()
        # No table limits computed cosines.
        assert angles.rows is None
    # All layers of a model read positions alike.
    assert len({angles.positions() for angles in found}) == 1


@pytest.mark.parametrize("name", ["bloom", "gpt2"])
def test_other_attention_reads_no_tables(name):
    for angles in tiny_model(name).analysis(find_angles):
        assert (angles.tables, angles.forms, angles.misses) == ((), (), ())


def test_tables_of_an_operator_have_a_row_for_each_position():
    (angles,) = run(tiny_model("llama", layers=1), "fuse-group-query-attention{context=64}").analysis(find_angles)
    assert angles.rows == 64
    assert {table.axis for table in angles.tables} == {None}
    (computed,) = tiny_model("llama", layers=1).analysis(find_angles)
    assert len(angles.channels()) == len(computed.channels())


def test_learned_positions_end_with_their_table():
    model = tiny_model("gpt2")
    (angles,) = model.analysis(find_learned_positions)
    assert angles.node.op == "Add"
    assert angles.rows == 256
    assert len(angles.positions()) == 1
    assert model.analysis(find_last_row) == 256
    assert tiny_model("llama").analysis(find_learned_positions) == ()
    assert tiny_model("llama").analysis(find_last_row) is None


def test_channels_differ_if_frequencies_do():
    (plain,) = tiny_model("llama", layers=1).analysis(find_angles)
    (wider,) = tiny_model(replace(FAMILIES["llama"], head_dim=16), layers=1).analysis(find_angles)
    assert plain.channels() != wider.channels()
    assert plain.positions() == wider.positions()
    assert all(ex.contains([form], position) for form in plain.forms for position in plain.positions())
