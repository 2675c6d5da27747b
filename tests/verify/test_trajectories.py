"""The sequences on which two models are compared, by what their sessions support."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphpass.analysis.lengths.thresholds import Threshold
from graphpass.errors import UsageError
from graphpass.runtime import open_session
from graphpass.testing import tiny_model
from graphpass.verify.prompts import Vocabulary, padded
from graphpass.verify.trajectories import Limit, Planner, Sides

LIMIT = Limit(1000, "they take too long")
BOTH = {"left": padded, "right": lambda description, rows: padded(description, rows, "right")}


def planner(model=None, candidate=None, **settings) -> Planner:
    model = model or tiny_model("llama", layers=1)
    sessions = open_session(model), open_session(candidate or model)
    sides = Sides(BOTH, "linear caches", "left", alone=False)
    made = Planner(*sessions, None, Vocabulary(64), sides, {}, drafts=True, token_ids=())
    return replace(made, **settings)


def described(plan) -> list[str]:
    return [trajectory.prompt.description for trajectory in plan]


def planned(made: Planner, steps=3, edited=(), thresholds=(), limit=LIMIT, prompt_ids=None):
    return made.plan(steps, prompt_ids, edited, thresholds, limit)


def test_prompts_batches_and_rows():
    made = planner()
    plan = planned(made)
    assert described(plan) == [
        "prompt of 5 tokens",
        "prompt of 11 tokens",
        "batch of 3, prompts of 11, 2 and 9 tokens, padded on the left",
        "rows, batch of 5, prompts of 4 tokens",
        "batch of 3, prompts of 11, 1 and 5 tokens, padded on the right",
    ]
    assert [len(trajectory.rounds) for trajectory in plan[:3]] == [3, 3, 3]
    assert [trajectory.is_other_side for trajectory in plan] == [False] * 4 + [True]
    assert made.skipped == {}


def test_given_ids_are_the_first_prompt():
    plan = planned(planner(), prompt_ids=(7, 8))
    assert plan[0].prompt.rows == ((7, 8),)
    assert described(plan)[1] == "prompt of 8 tokens"
    for ids in ((), (64,)):
        with pytest.raises(UsageError):
            planned(planner(), prompt_ids=ids)


def test_without_steps_there_are_prompts_alone():
    assert len(planned(planner(), steps=0)) == 3


def test_a_fixed_batch_is_not_padded():
    made = planner(batch=1)
    plan = planned(made)
    assert described(plan) == ["prompt of 5 tokens", "prompt of 11 tokens"]
    assert set(made.skipped) == {
        "padded batch: the batch is fixed at 1",
        "rows selected by a beam search: the batch is fixed at 1",
    }


def test_a_side_that_padding_enters_is_skipped():
    made = planner(sides=Sides({}, "linear caches", "left", alone=False))
    plan = planned(made)
    assert described(plan)[2] == "batch of 3, prompts of 5 tokens"
    assert "left padding: it enters linear caches" in made.skipped
    assert "right padding: it enters linear caches" in made.skipped


def test_lengths_around_thresholds_until_the_end_of_tables():
    made = planner()
    thresholds = [Threshold(8, "window"), Threshold(300, "table", ends=True)]
    plan = [each for each in planned(made, thresholds=thresholds) if each.is_long]
    assert [each.prompt.ids.shape[1] for each in plan][:3] == [7, 8, 16]
    assert all(each.prompt.ids.shape[1] + len(each.rounds) <= 300 for each in plan)
    short = planner()
    assert not [each for each in planned(short, thresholds=thresholds, limit=Limit(5, "no time")) if each.is_long]
    assert "prompts of 7 tokens around 8: no time" in short.skipped


def test_ids_that_graphs_compare_with_are_a_prompt():
    plan = planned(planner(token_ids=(3, 4, 99)))
    assert plan[-1].prompt.rows == ((3, 4),)
    assert described(plan)[-1] == "token ids of the graphs, prompt of 2 tokens"
    few = planner(token_ids=(3, 4))
    planned(few, limit=Limit(2, "no time"))
    assert "2 token ids that the graphs compare tokens with: no time" in few.skipped


def test_edits_move_slots_of_kv_caches_alone():
    plain = planner()
    plan = planned(plain, edited=("kv", "kv"))
    assert "edits, prompt of 5 tokens" in described(plan)
    assert any("edits, batch of 2" in text for text in described(plan))
    hybrid = planner(tiny_model("lfm2"))
    planned(hybrid, edited=("hybrid", "hybrid"))
    assert any(text.startswith("reorder: the reference is of kind hybrid") for text in hybrid.skipped)
