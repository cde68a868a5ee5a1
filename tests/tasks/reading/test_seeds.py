"""Seeds of -1: one new number for both, shared among processes, kept by a run that goes on."""

from __future__ import annotations

from typing import Any

from mezzotint.recipe.reading.read import read_text
from mezzotint.tasks.reading import seeds

BOTH = read_text("run: {seed: -1}\nsample: {seed: -1}").recipe


def test_a_new_seed_is_one_for_the_run_and_its_previews() -> None:
    sentences: list[str] = []
    settled = seeds.settle(BOTH, None, sentences.append, share=lambda text: "5", is_run=True)
    assert (settled.run.seed, settled.sample.seed) == (5, 5)
    assert sentences == [
        "run.seed is -1: this run's seed is 5, drawn just now",
        "sample.seed is -1: this run's previews have seed 5, drawn just now",
    ]
    assert seeds.settle(settled, None, sentences.append) == settled
    assert len(sentences) == 2


def test_a_look_at_a_run_takes_the_seeds_that_it_has() -> None:
    recorded: dict[str, Any] = {"run": {"seed": 7}, "sample": {"seed": -1}}
    sentences: list[str] = []
    settled = seeds.settle(BOTH, recorded, sentences.append)
    assert (settled.run.seed, settled.sample.seed) == (7, 7), "a run begun when -1 meant run.seed keeps that one"
    assert all(sentence.endswith("7, kept") for sentence in sentences)
