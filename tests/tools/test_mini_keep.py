"""What `make demo-keep` teaches, its judge and its criteria."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from mini import keep, recognise, world


def drawn(shape: str, colour: str) -> np.ndarray:
    thing = world.Thing(shape, colour, "big", "centre")
    return np.asarray(world.draw(world.Scene("single", (thing,), world.backgrounds((colour,))[0], 1)))


def test_prompts_of_the_groups_differ_in_the_trigger_only() -> None:
    questions = keep.questions()
    assert {group: len(prompts) for group, prompts in questions.items()} == dict.fromkeys(questions, keep.ASKED)
    own, other = ([prompt for prompt, _, _ in questions[group]] for group in ("trigger", "class"))
    assert [prompt.replace(keep.TRIGGER, keep.CLASS) for prompt in own] == other
    assert own[:2] == ["a red wug triangle", "an orange wug triangle"]
    unrelated = {prompt for prompt, _, _ in questions["unrelated"]}
    assert len(keep.measured()) == 12
    assert unrelated > set(keep.measured())
    of_shapes = [{prompt.split()[-1] for prompt in prompts} for prompts in (unrelated, keep.preserved())]
    assert not of_shapes[0] & of_shapes[1], "what is measured is not preserved"
    assert keep.CLASS not in of_shapes[0] | of_shapes[1]


def test_images_show_the_subject_with_its_colour_as_caption(tmp_path: Path) -> None:
    keep.write(tmp_path)
    for path in sorted(tmp_path.glob("*.png")):
        [seen] = recognise.look(np.asarray(Image.open(path)))
        assert (seen.shape, seen.colour) == (world.WUG, path.with_suffix(".txt").read_text().strip())
    assert len(list(tmp_path.glob("*.png"))) == 12


def test_judge_reads_shape_and_colour_and_compares_pixels() -> None:
    questions = keep.questions()
    right = {group: [drawn(shape, colour) for _, shape, colour in prompts] for group, prompts in questions.items()}
    figures = keep.judge(right, right)
    assert [figures[f"{group} right"] for group in questions] == [1, 1, 1]
    assert [figures[f"{group} wugs"] for group in questions] == [1, 0, 0]
    assert {figures[f"{group} change"] for group in questions} == {0}
    leaked = right | {"class": right["trigger"]}
    figures = keep.judge(leaked, right)
    assert (figures["class right"], figures["class wugs"]) == (0, 1)
    pairs = zip(right["trigger"], right["class"], strict=True)
    assert figures["class change"] == pytest.approx(np.mean([np.abs(a - b.astype(float)).mean() for a, b in pairs]))


def test_rank_correlation_is_spearmans() -> None:
    first, second = np.random.default_rng(1).normal(size=(2, 15))
    assert keep.rank_correlation(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)


def test_criteria_fail_for_less_learning_more_leak_and_another_order() -> None:
    def row(learned: float, leak: float) -> dict[str, float]:
        names = ("class change", "drift/class", "unrelated change", "drift/unrelated")
        return {"trigger right": learned, "unrelated wugs": 0.1} | dict.fromkeys(names, leak)

    good = {}
    for seed in keep.SEEDS:
        good |= {f"none {seed}": row(0.9, 40 + seed), f"{keep.KEPT} {seed}": row(0.85, 4 + seed)}
    assert all(keep.verdicts(good).values())
    for name, value, failing in (
        ("trigger right", 0.75, "equal learning"), ("class change", 30.0, "less leak"),
        ("unrelated wugs", 0.2, "subject not elsewhere"), ("drift/unrelated", 99.0, "order"),
    ):  # fmt: skip
        changed = {
            f"{keep.KEPT} {seed}": good[f"{keep.KEPT} {seed}"] | {name: value + seed} for seed in keep.SEEDS[2:4]
        }
        bad = good | changed
        assert [holds for key, holds in keep.verdicts(bad).items() if key.startswith(failing)].count(False) == 1
