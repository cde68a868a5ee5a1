"""Prompts of the meter of drift (`run.drift`): captions with the trigger, the same with its class word, and unrelated
ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice

from mezzotint.data.schedule.captions import Changes, without_changes
from mezzotint.data.schedule.preserved import with_class_word
from mezzotint.sampling.requests import Request
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.assemble import Caches, Dataset, frames_to_generate
from mezzotint.tasks.prompts import cleaning
from mezzotint.tasks.prompts.previews import rows_in_turn
from mezzotint.training.callbacks.base import DriftPrompt
from mezzotint.training.model import TrainableModel


def captions(recipe: Recipe, dataset: Dataset) -> tuple[str, ...]:
    """The texts that the meter needs from a text cache."""
    if recipe.run.drift.every is None:
        return ()
    texts = (text for pairs in _texts(recipe, dataset).values() for pair in pairs for text in pair)
    return (*texts, _negative(recipe))


def prompts(
    recipe: Recipe, dataset: Dataset, caches: Caches, model: TrainableModel
) -> dict[str, tuple[DriftPrompt, ...]]:
    """The prompts by group: "trigger" and "class" if captions have a trigger or learned tokens, and "unrelated"."""
    family = model.family
    side = max(recipe.data.resolution)
    width, height = (length - length % family.grid.side for length in recipe.sample.size or (side, side))
    size = Size(width, height, frames_to_generate(recipe, family.grid))
    negative = _negative(recipe)

    def embedding(text: str) -> TextEmbedding | None:
        return None if caches.text is None else caches.text.read([text], images=[b""])

    def request(text: str, index: int) -> Request:
        return Request(
            text, size, negative, seed=recipe.run.seed, index=index, text=embedding(text),
            negative_text=embedding(negative), steps=recipe.run.drift.timesteps, guidance=recipe.sample.guidance[0],
        )  # fmt: skip

    return {
        group: tuple(
            DriftPrompt(request(own, index), request(other, index)) for index, (own, other) in enumerate(pairs)
        )
        for group, pairs in _texts(recipe, dataset).items()
    }


def _negative(recipe: Recipe) -> str:
    return cleaning.clean_prompt(recipe.sample.negative_prompt, recipe.data.captions)


def _texts(recipe: Recipe, dataset: Dataset) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Pairs of texts by group: for the trained model, and for the base, which does not know learned tokens."""
    triggers, classes = [], []
    count = recipe.run.drift.prompts
    for caption, preserved in islice(cycle(list(islice(_with_trigger(recipe, dataset), count))), count):
        has_token = any(token in caption for token in recipe.model.tokens.all)
        triggers.append((caption, preserved if has_token else caption))
        classes.append((preserved, preserved))
    unrelated = [cleaning.clean_prompt(text, recipe.data.captions) for text in recipe.run.drift.unrelated]
    groups = {"trigger": triggers, "class": classes, "unrelated": [(text, text) for text in unrelated]}
    return {group: pairs for group, pairs in groups.items() if pairs}


def _with_trigger(recipe: Recipe, dataset: Dataset) -> Iterator[tuple[str, str]]:
    """The first different captions with a trigger or a learned token, of each set in turn, and the same with the class
    word."""
    seen: set[str] = set()
    for row in rows_in_turn(dataset).tolist():
        settings = dataset.catalogue.settings_of(row, recipe.data).captions
        for text in dataset.catalogue.captions(row):
            caption = without_changes(text, Changes.of(settings))
            preserved = " ".join(with_class_word(caption, settings, recipe.model.tokens.all).split())
            if caption not in seen and preserved != " ".join(caption.split()):
                seen.add(caption)
                yield caption, preserved
