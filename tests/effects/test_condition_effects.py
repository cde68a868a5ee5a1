"""Rows of condition images: `data.conditions`, `model.task`, and what is sampled with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.tasks.prompts import condition_images

Make = Callable[..., Any]


def negatives(images: Path, folder: Path) -> Path:
    """The negative of each image, in a folder of their own."""
    folder.mkdir(exist_ok=True)
    for path in images.glob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(path).convert("RGB"))).save(folder / path.name)
    return folder


# breaks if a condition is not paired, cropped and mirrored like its sample, or is trained as an image
@pytest.mark.effect("data.conditions")
def test_conditions_are_placed_like_their_samples(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(40, 32), (32, 48), (32, 32)])
    before = negatives(folder, folder / "before")
    fed = feed(
        folder, conditions=json.dumps({"source": str(before)}), crop="random", flip=0.5, buckets__shape="square",
        captions__missing="empty", resize="nearest", steps=6,
    )  # fmt: skip
    keys = set()
    for batch in fed.batches():
        keys |= set(batch.keys)
        torch.testing.assert_close(batch.conditions["source"].pixels, -batch.pixels)
    assert keys == {"000.png", "001.png", "002.png"}
    assert not feed(folder, captions__missing="empty").batches()[0].conditions


# breaks if conditions of one folder are told apart by other ends of names than their suffixes
@pytest.mark.effect("data.conditions")
def test_conditions_of_one_folder_have_suffixes(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder, shades = noisy(tmp_path / "own", [(32, 32)] * 2), {"_0": 0, "_1": 255}
    (tmp_path / "other").mkdir()
    for suffix, shade in shades.items():
        for path in folder.glob("*.png"):
            Image.new("L", (32, 32), shade).save(tmp_path / "other" / f"{path.stem}{suffix}.png")
    names = {"a": "_1", "b": "_0"}
    conditions = {name: {"folder": str(tmp_path / "other"), "suffix": suffix} for name, suffix in names.items()}
    fed = feed(folder, conditions=json.dumps(conditions), captions__missing="empty", batch_size=2)
    [batch] = fed.batches()
    assert {name: float(batch.conditions[name].pixels.mean()) for name in names} == {"a": 1.0, "b": -1.0}


# breaks if captions and images are not dropped together with the probabilities of the recipe
@pytest.mark.effect("data.condition_dropout")
def test_condition_dropout_drops_captions_and_images(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(32, 32)] * 3)
    for path in folder.glob("*.png"):
        path.with_suffix(".txt").write_text("an edit")
    before = negatives(folder, tmp_path / "before")
    counts = {}
    for p in (0, 0.3):
        fed = feed(folder, conditions=json.dumps({"source": str(before)}), condition_dropout=p, steps=40, batch_size=3)
        seen = [
            (bool(caption), bool(kept))
            for batch in fed.batches()
            for caption, kept in zip(batch.captions, batch.conditions["source"].is_kept, strict=True)
        ]
        counts[p] = {kind: seen.count(kind) / len(seen) for kind in set(seen)}
    assert counts[0] == {(True, True): 1.0}
    assert counts[0.3].keys() == {(True, True), (True, False), (False, True), (False, False)}
    assert counts[0.3][True, True] < 0.3


# breaks if the model gets no further channels, they are not trained, or the image does not reach them
@pytest.mark.effect("model.task")
def test_task_edit_adds_channels_that_are_trained(prepare: Make, shared_world: Any, tmp_path: Path) -> None:
    before = negatives(shared_world.images, tmp_path / "before")
    conditions = json.dumps({"source": str(before)})
    ready = prepare(model__task="edit", data__conditions=conditions, data__cache__latents=False)
    weight = ready.family.parts()["denoiser"].conv_in.weight
    assert weight.shape[1] == 8
    old = weight.detach().clone()
    ready.step()
    assert not torch.equal(old[:, 4:], weight[:, 4:])
    assert prepare().family.parts()["denoiser"].conv_in.weight.shape[1] == 4


# breaks if captions are cut at 75 tokens whatever the setting
@pytest.mark.effect("model.caption_tokens")
def test_caption_tokens_give_more_states(prepare: Make) -> None:
    short, long = (prepare(model__caption_tokens=n, data__cache__text=False).family for n in (75, 225))
    text = "a red circle " * 40
    assert [one.encode_text([text]).states.shape[1] for one in (short, long)] == [77, 227]
    assert short.lost_tokens([text])[0] > 0
    assert long.lost_tokens([text]) == (0,)


@pytest.fixture
def editor(prepare: Make, shared_world: Any, tmp_path: Path) -> Any:
    """A model that edits, whose new channels have weights."""
    before = negatives(shared_world.images, tmp_path / "before")
    plain = {"data__cache__text": False, "data__cache__latents": False}
    ready = prepare(model__task="edit", data__conditions=json.dumps({"source": str(before)}), **plain)
    weight = ready.family.parts()["denoiser"].conv_in.weight
    with torch.no_grad():
        weight[:, 4:] = torch.randn(weight[:, 4:].shape, generator=torch.Generator().manual_seed(0))
    return ready.family


def latents(family: Any, source: torch.Tensor, **settings: Any) -> torch.Tensor:
    chosen = SampleSettings(steps=2, solver="ddim", **settings)
    request = Request("a red circle", Size(32, 32), images={"source": source})
    return sample_latents(family, [request], Sampling(family.schedule, family.prediction, "cpu", chosen))


# breaks if the scale of the image has no effect, or has one without an image
@pytest.mark.effect("sample.image_guidance")
def test_image_guidance_scales_the_effect_of_the_image(editor: Any) -> None:
    side = 32 // editor.grid.pixels
    image, zeros = torch.ones(1, 4, side, side), torch.zeros(1, 4, side, side)
    first, second = (latents(editor, image, image_guidance=scale) for scale in (1.0, 3.0))
    assert not torch.allclose(first, second)
    first, second = (latents(editor, zeros, image_guidance=scale) for scale in (1.0, 3.0))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-4)


# breaks if the file of a prompt is not encoded, or is that of another prompt
@pytest.mark.effect("sample.conditions")
def test_each_prompt_has_its_image(editor: Any, prepare: Make, tmp_path: Path) -> None:
    for name, shade in (("dark", 10), ("light", 240)):
        Image.new("RGB", (50, 40), (shade,) * 3).save(tmp_path / f"{name}.png")
    files = [str(tmp_path / "dark.png"), str(tmp_path / "light.png")]
    requests = [Request("a", Size(32, 32), line=0), Request("b", Size(32, 32), line=1)]
    for chosen, is_same in ((files, False), (files[:1], True)):
        recipe = prepare(sample__conditions=json.dumps({"source": chosen})).recipe
        first, second = condition_images.with_images(requests, recipe, lambda: editor, {})
        assert torch.equal(first.images["source"], second.images["source"]) == is_same
