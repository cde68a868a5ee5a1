"""The pairs that `make demo-edit` teaches, and their judge."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from mini import edits, recognise


def test_pairs_are_as_many_of_each_edit_and_none_is_in_both_seeds() -> None:
    training, exam = edits.pairs(90, edits.TRAINING_SEED), edits.pairs(90, edits.EXAM_SEED)
    assert Counter(pair.edit for pair in training) == dict.fromkeys(edits.EDITS, 30)
    assert not {pair.before.address for pair in training} & {pair.before.address for pair in exam}
    assert edits.pairs(9, edits.EXAM_SEED) == exam[:9]


def test_edit_changes_what_it_says_and_nothing_else() -> None:
    for pair in edits.pairs(60, 5):
        [before] = recognise.look(np.asarray(pair.images()[0]))
        after = recognise.look(np.asarray(pair.images()[1]))
        if pair.edit == edits.REMOVE:
            assert after == []
        elif pair.edit == edits.RED:
            assert (after[0].colour, after[0].shape, after[0].position) == ("red", before.shape, before.position)
            assert before.colour != "red"
        else:
            assert (after[0].colour, after[0].shape) == (before.colour, before.shape)
            assert "left" in after[0].position
            assert "left" not in before.position


@pytest.mark.parametrize("edit", edits.EDITS)
def test_judge_accepts_the_edit_and_refuses_everything_else(edit: str) -> None:
    for pair in [pair for pair in edits.pairs(60, 6) if pair.edit == edit]:
        before, after = (np.asarray(image) for image in pair.images())
        assert edits.judge(after, pair).all
        assert not edits.judge(before, pair).thing
        other = np.where(after > 127, after - 60, after + 60)
        assert edits.judge(other.astype(np.uint8), pair).background > edits.BACKGROUND_ERROR
        noisy = after.astype(np.int64) + np.random.default_rng(0).integers(-9, 10, after.shape)
        assert edits.judge(np.clip(noisy, 0, 255).astype(np.uint8), pair).all


def test_shares_count_both_the_thing_and_the_background() -> None:
    chosen = edits.pairs(3, 6)
    good, moved, spoiled = edits.Judgement(True, 1.0), edits.Judgement(False, 1.0), edits.Judgement(True, 50.0)
    row = edits.shares([good, moved, spoiled], chosen)
    assert (row["all"], row["thing"], row["background"]) == (1 / 3, 2 / 3, 2 / 3)
    assert [row[pair.edit] for pair in chosen] == [1.0, 0.0, 0.0]
