"""What a verb says of itself: where it lies, and its switches under every spelling."""

from __future__ import annotations

import importlib

import pytest

from mezzotint.tasks.reading.verb import AS, Switch, Verb
from mezzotint.tasks.reading.verbs import VERBS


@pytest.mark.parametrize("form", ["--json", "--max-steps=N"])
def test_a_switch_is_called_by_what_stands_before_its_value(form: str) -> None:
    switch = Switch(form, "what it means", setting="run.steps")
    assert (switch.name, switch.takes_value) == (form.removesuffix("=N"), form.endswith("=N"))
    assert switch.help == "run.steps, what it means"


def test_a_verb_knows_its_switches_by_alias_hyphens_and_underscores() -> None:
    steps = Switch("--max-steps=N", "", aliases=("--steps",))
    verb = Verb("draw", "draws", "", (), switches=(steps,), has_tools=True)
    assert verb.switch("--max_steps") is verb.switch("--steps") is steps
    assert verb.switch("--as") is AS
    assert verb.switch("--allow-package") is None, "for those that read a recipe"


def test_a_verb_lies_in_its_folder_in_a_room_of_others_or_in_a_file() -> None:
    places = {verb.name: verb.module for verb in VERBS}
    assert places["train"] == "mezzotint.tasks.train.train"
    assert places["convert"] == "mezzotint.tasks.weights.convert"
    assert places["explain"] == "mezzotint.tasks.explain"
    assert places["board"] == "mezzotint.board.board"
    assert callable(importlib.import_module(places["explain"]).run)
