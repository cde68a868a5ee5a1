"""Proposals for a new run: valid recipes with the values of the shipped ones; messages where a choice is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mezzotint.board.acting.fields import word_of
from mezzotint.settings.families.base import specs
from mezzotint.settings.reading.paths import by_path
from mezzotint.settings.reading.read import read
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.proposing.choices import GOALS, DataFacts, ModelFacts, ProposedSetting, RunChoices
from mezzotint.tasks.proposing.proposing import Proposal, propose

FAMILIES = [spec.name for spec in specs() if spec.starters]
EDITORS = {"flux2": "Flux2KleinPipeline", "qwen-image": "QwenImageEditPipeline"}
MINI = ModelFacts(path="mezzotint-mini", label="mezzotint-mini", family="sd", shipped="mezzotint-mini")
SDXL = ModelFacts(path="/models/xl", label="xl", family="sdxl", pipeline="StableDiffusionXLPipeline", side=1024)
PHOTOS = DataFacts(path="/photos/rex", name="rex", images=10)
CARD = 24 * 10**9


def choose(**choices: Any) -> RunChoices:
    return RunChoices(
        **{"goal": "subject", "model": SDXL, "data": PHOTOS, "trigger": "sks dog", "card": CARD} | choices
    )


def recipe_of(proposal: Proposal) -> Recipe:
    assert proposal.base, proposal.messages
    recipe = read(proposal.base, [f"{path}={text}" for path, text in proposal.changes.items()]).recipe
    in_form = read(proposal.base, [word_of(by_path()[path], text) for path, text in proposal.changes.items()]).recipe
    assert in_form == recipe, "the form All settings reads the changes as the command does"
    return recipe


def row(proposal: Proposal, path: str) -> ProposedSetting:
    return next(one for one in proposal.rows if one.path == path)


def said(proposal: Proposal) -> dict[str, str]:
    return {one.field: one.text for one in proposal.messages if one.kind != "hint"}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_goal_is_a_valid_recipe_or_says_why_not(family: str) -> None:
    """On a processor and on a small and a large card, with and without captions."""
    takes_clips = bool(read(next(s for s in specs() if s.name == family).starters[-1].recipe).recipe.data.clips.buckets)
    model = ModelFacts(path="/m", label="m", family=family, pipeline=EDITORS.get(family, ""))
    refused = set()
    for goal in GOALS:
        for card, num_captions in ((None, 0), (8 * 10**9, 12), (80 * 10**9, 7)):
            counts: dict[str, Any] = {
                "clips" if takes_clips else "images": 12,
                "captions": 12 if goal == "edit" else num_captions,
            }
            data = DataFacts(path="/a, b/c", name="c", **counts)
            proposal = propose(choose(goal=goal, model=model, data=data, before="/b", card=card))
            if not proposal.base:
                assert "cannot learn to edit" in said(proposal)["model"]
                refused.add(goal)
                continue
            recipe = recipe_of(proposal)
            assert recipe.model.family == family
            assert goal == "edit" or recipe.model.has_adapter is (goal != "full")
            assert list(map(str, recipe.data.paths)) == ["/a, b/c"]
            assert all(one.reason and one.reason.endswith((".", "”")) for one in proposal.rows)
    assert refused <= {"edit"}


def test_values_are_those_of_the_recipe() -> None:
    """What is not derived from the data stays as it ships."""
    proposal = propose(choose())
    own = read("sdxl-lora").recipe
    assert proposal.base == "sdxl-lora"
    assert row(proposal, "optim.lr").value == own.optim.lr
    assert row(proposal, "model.adapter.rank").value == own.model.adapter.rank
    assert row(proposal, "data.batch_size").value == own.data.batch_size
    assert row(proposal, "data.resolution").value == own.data.resolution[0]
    assert all(one.path not in proposal.changes for one in proposal.rows if one.is_kept and one.path)


@pytest.mark.parametrize(
    ("images", "steps"),
    [
        (2, 400),  # the fewest
        (10, 400),  # 10 × 160 visits ÷ 4
        (40, 1600),
        (10_000, 2000),  # those of the recipe
    ],
)
def test_steps_follow_from_the_images(images: int, steps: int) -> None:
    proposal = propose(choose(data=replace(PHOTOS, images=images)))
    assert recipe_of(proposal).run.steps == steps
    assert f"{images:,} images × " in row(proposal, "run.steps").reason
    assert row(proposal, "run.preview.every").value == f"{steps // 4} steps"


def test_own_steps_move_previews_and_checkpoints() -> None:
    recipe = recipe_of(propose(choose(steps=20)))
    assert (recipe.run.steps, str(recipe.run.preview.every), str(recipe.run.save.every[0])) == (
        20,
        "5 steps",
        "5 steps",
    )


def test_a_subject_with_a_class_is_preserved() -> None:
    recipe = recipe_of(propose(choose()))
    assert recipe.objective.preserve.kind == ("output", "prompts")
    assert recipe.data.captions.subject_class == "dog"
    assert recipe.data.captions.template == "a photo of {trigger}"
    assert recipe.data.captions.dropout == 0
    assert recipe.sample.prompts == ("a photo of sks dog", "a drawing of sks dog, by the sea", "a photo of dog")
    assert recipe.run.drift.every is not None


@pytest.mark.parametrize("choices", [{"trigger": "sks"}, {"goal": "style"}, {"data": replace(PHOTOS, is_named=True)}])
def test_without_a_class_nothing_is_preserved(choices: dict[str, Any]) -> None:
    proposal = propose(choose(**choices))
    assert recipe_of(proposal).objective.preserve.kind == ("none",)


def test_one_word_for_a_subject_gets_a_hint() -> None:
    hints = [one for one in propose(choose(trigger="sks")).messages if one.kind == "hint"]
    assert [one.field for one in hints] == ["trigger"]
    assert "“sks dog”" in hints[0].text


def test_captions_decide_what_the_trigger_does() -> None:
    captioned = replace(PHOTOS, captions=10)
    assert recipe_of(propose(choose(data=captioned))).data.captions.template == "", "it is put before each caption"
    style = recipe_of(propose(choose(goal="style", data=captioned, trigger="zwx"))).data.captions
    assert style.template == "{caption}, in the style of {trigger}"
    assert recipe_of(propose(choose(data=replace(PHOTOS, captions=4)))).data.captions.missing == "empty"
    named = recipe_of(propose(choose(data=replace(captioned, is_named=True)))).data.captions
    assert named.trigger == "", "the captions have it"


def test_card_and_model_choose_the_recipe() -> None:
    full = {"goal": "full", "data": replace(PHOTOS, captions=10)}
    assert propose(choose(**full)).base == "sdxl-24gb"
    assert propose(choose(**full, card=80 * 10**9)).base == "sdxl-cached"
    sd = ModelFacts(path="/m", label="m", family="sd", prediction="v_prediction", side=768)
    assert propose(choose(**full, model=sd)).base == "sd21-768-v"
    assert recipe_of(propose(choose(model=sd))).data.resolution == (768,), "the model's, not that of sd15-lora"
    twelve = propose(choose(**full, model=replace(sd, prediction="epsilon", side=512), card=12 * 10**9))
    assert twelve.base == "sd15-12gb"
    assert recipe_of(twelve).run.epochs is None, "steps take the place of its epochs"
    dev = ModelFacts(path="/m", label="m", family="flux2", pipeline="Flux2Pipeline")
    assert propose(choose(model=dev)).base == "flux2-dev-lora-24gb"
    assert recipe_of(propose(choose(model=dev, card=None))).run.frozen_dtype == "same", "quantized matrices need a card"


def test_shipped_model_is_taught_as_in_the_demonstrations() -> None:
    recipe = recipe_of(propose(choose(model=MINI, card=None)))
    assert (recipe.run.name, recipe.model.train, recipe.model.tokens.words) == ("sks-dog", ("denoiser",), {})
    assert recipe.objective.preserve.weight == 1.25
    captioned = replace(PHOTOS, captions=10)
    edit = recipe_of(propose(choose(model=MINI, goal="edit", data=captioned, before="/b", before_image="/b/1.png")))
    assert (edit.model.task, edit.run.steps, edit.data.condition_dropout) == ("edit", 850, 0.05)
    assert str(edit.data.conditions["source"].folder) == "/b"


@pytest.mark.parametrize(
    ("choices", "field", "text"),
    [
        ({"model": None}, "model", "Choose the model"),
        ({"data": None}, "data", "Choose the folder"),
        ({"data": replace(PHOTOS, images=0)}, "data", "rex has no images or clips."),
        ({"trigger": ""}, "trigger", "10 images have no caption: give a word"),
        ({"goal": "edit", "data": replace(PHOTOS, captions=10)}, "before", "before the edit"),
        ({"goal": "edit", "before": "/b"}, "data", "10 images have no caption: each needs its instruction"),
        ({"model": replace(SDXL, is_distilled=True)}, "model", "is a distilled model"),
        ({"model": replace(SDXL, family="chroma"), "goal": "edit", "before": "/b"}, "model", "cannot learn to edit"),
        ({"model": replace(SDXL, family="wan")}, "data", "learns from clips, and rex has only images"),
        ({"data": replace(PHOTOS, images=0, clips=3)}, "data", "learns from images, and rex has only clips"),
        ({"name": "old", "taken": frozenset(["old"])}, "name", "There is a run old already"),
    ],
)
def test_missing_and_impossible_choices_have_a_message_at_their_field(
    choices: dict[str, Any], field: str, text: str
) -> None:
    proposal = propose(choose(**choices))
    assert proposal.base == ""
    assert text in said(proposal)[field]


def test_names_of_runs_are_new_and_valid() -> None:
    taken = frozenset(["sks-dog", "sks-dog-2"])
    assert recipe_of(propose(choose(taken=taken))).run.name == "sks-dog-3"
    assert recipe_of(propose(choose(trigger="<img src=x> 犬"))).run.name == "img-src-x"
    assert recipe_of(propose(choose(trigger="犬 犬"))).run.name == "subject"


def test_captions_without_a_trigger_are_enough() -> None:
    proposal = propose(choose(trigger="", data=replace(PHOTOS, captions=10)))
    recipe = recipe_of(proposal)
    assert (recipe.data.captions.trigger, recipe.sample.prompts) == ("", ())
    assert [(one.field, one.kind) for one in proposal.messages] == [("trigger", "hint")]


def test_parts_that_a_file_lacks_come_from_a_folder() -> None:
    file = ModelFacts(path="/m/flux.safetensors", label="flux", family="flux", is_file=True)
    assert [(one.field, one.kind) for one in propose(choose(model=file)).messages] == [("model", "hint")]
    recipe = recipe_of(propose(choose(model=replace(file, config="/m/flux"))))
    assert (str(recipe.model.path), str(recipe.model.config)) == ("/m/flux.safetensors", "/m/flux")
