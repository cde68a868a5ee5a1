"""The world of mezzotint-mini, its recognisers, and the training of its VAE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from mini import make_world, recognise, train_vae, wild, world
from mini.world import Scene


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [world.scene(index, 7) for index in range(3000)]


def draw_pixels(scene: Scene) -> np.ndarray:
    return np.asarray(world.draw(scene))


def shares(scenes: list[Scene], change: Callable[[np.ndarray], np.ndarray] = np.asarray) -> dict[str, float]:
    verdicts = [recognise.judge(change(draw_pixels(scene)), scene) for scene in scenes]
    names = ("colour", "shape", "position", "count", "relation")
    return {name: float(np.mean([getattr(verdict, name) for verdict in verdicts])) for name in names}


def test_scene_depends_only_on_its_index_and_seed(scenes: list[Scene]) -> None:
    assert world.scene(1234, 7) == scenes[1234]
    assert world.scene(1234, 8) != scenes[1234]
    assert np.array_equal(draw_pixels(scenes[5]), draw_pixels(world.scene(5, 7)))
    assert len({scene.address for scene in scenes}) == len(scenes)


def test_held_out_pairs_and_wugs_are_not_in_the_world(scenes: list[Scene]) -> None:
    shown = {(thing.shape, thing.colour) for scene in scenes for thing in scene.things}
    assert shown == set(product(world.SHAPES, world.COLOURS)) - set(world.HELD_OUT)
    assert {shape for shape, _ in shown} == set(world.SHAPES)
    assert {colour for _, colour in shown} == set(world.COLOURS)


def test_positions_backgrounds_relations_and_counts_have_their_shares(scenes: list[Scene]) -> None:
    single = [scene.things[0] for scene in scenes if scene.kind == "single"]
    assert {thing.position for thing in single} == set(world.CENTRES)
    assert {scene.background for scene in scenes} == set(world.BACKGROUNDS)
    assert {scene.relation for scene in scenes} == {None, *world.RELATIONS}
    assert {len(scene.things) for scene in scenes if scene.kind == "count"} == set(world.COUNTS)
    for kind, share in world.SHARES.items():
        assert sum(scene.kind == kind for scene in scenes) / len(scenes) == pytest.approx(share, abs=0.03)


def test_objects_contrast_with_the_background_and_do_not_touch(scenes: list[Scene]) -> None:
    for scene in scenes[:600]:
        assert all(scene.background in world.backgrounds((thing.colour,)) for thing in scene.things)
        apart = np.abs(draw_pixels(scene).astype(int) - world.BACKGROUNDS[scene.background]).max(axis=2) > 8
        _, count = ndimage.label(apart, structure=np.ones((3, 3)))
        assert count == len(scene.things)


@pytest.mark.parametrize("shape", [*world.SHAPES, world.WUG])
def test_at_most_a_thirtieth_of_an_object_is_cut_off(shape: str) -> None:
    diameter = world.DIAMETERS["big"] * (1 + world.SIZE_JITTER)
    whole = np.asarray(world.silhouette(shape, (32, 32), diameter), dtype=float).sum()
    for x, y in world.CENTRES.values():
        corner = (x + np.sign(x - 32) * world.CENTRE_JITTER, y + np.sign(y - 32) * world.CENTRE_JITTER)
        kept = np.asarray(world.silhouette(shape, corner, diameter), dtype=float).sum()
        assert kept >= (1 - 1 / 30) * whole


def test_captions_are_three_true_short_wordings(scenes: list[Scene]) -> None:
    for scene in scenes[:600]:
        captions = world.captions(scene)
        assert len(set(captions)) == 3
        assert set(captions) <= {world.caption(scene, wording) for wording in range(world.wordings(scene))}
        for text in captions:
            assert text == text.lower()
            assert len(text.split()) <= 14
            words = set(text.replace(",", " ").replace("crosses", "cross").split())
            assert {thing.colour for thing in scene.things} <= words
            named = words | {word.removesuffix("s") for word in words}
            assert {thing.shape for thing in scene.things} <= named
            assert not named & (set(world.SHAPES) - {thing.shape for thing in scene.things})


def test_prompts_name_what_they_are_judged_by() -> None:
    for kind in ("seen", "held_out"):
        prompts = world.prompts(kind, 200, 3)
        for text, scene in prompts:
            thing = scene.things[0]
            place = "middle" if thing.position == "centre" else thing.position
            assert f"{thing.colour} {thing.shape}" in text
            assert place in text
        pairs = {(scene.things[0].shape, scene.things[0].colour) for _, scene in prompts}
        assert pairs == set(world.TAUGHT if kind == "seen" else world.HELD_OUT)
        assert {scene.things[0].position for _, scene in prompts} == set(world.CENTRES)
    for text, scene in world.prompts("relations", 50, 3):
        assert any(f" {way} " in text for way in world.RELATIONS), (text, scene)
    for text, scene in world.prompts("counts", 50, 3):
        assert world.COUNTS[len(scene.things)][0] in text
    assert {text for text, _ in world.prompts("seen", 50, 3)} != {text for text, _ in world.prompts("seen", 50, 4)}


def test_relation_is_described_from_either_object() -> None:
    scene = next(scene for scene in (world.scene(n, 1) for n in range(999)) if scene.relation == "left of")
    first, second = (f"{thing.colour} {thing.shape}" for thing in scene.things)
    assert f"{first} left of" in world.caption(scene, 0)
    assert f"{second} right of" in world.caption(scene, 1)


def test_wug_prompts_use_untrained_colours_and_positions() -> None:
    trained = [scene.things[0] for scene in world.wug_scenes()]
    assert len(trained) == len({(thing.colour, thing.position) for thing in trained}) == 12
    prompted = [scene.things[0] for _, scene in world.wug_prompts(100)]
    assert {thing.shape for thing in (*trained, *prompted)} == {world.WUG}
    assert not {thing.colour for thing in trained} & {thing.colour for thing in prompted}
    assert not {thing.position for thing in trained} & {thing.position for thing in prompted}
    assert len({(thing.colour, thing.position) for thing in prompted}) == 12
    assert all("wug" in text for text, _ in world.wug_prompts(100))


@pytest.mark.slow
def test_recognisers_read_the_world_and_wugs(scenes: list[Scene]) -> None:
    wugs = world.wug_scenes() + [scene for _, scene in world.wug_prompts(50)]
    for read in (shares(scenes[:700]), shares(wugs), shares([scene for _, scene in world.prompts("held_out", 99, 1)])):
        assert min(read.values()) >= 0.99, read
    grounds = [recognise.background(draw_pixels(scene)) == scene.background for scene in scenes[:300]]
    assert all(grounds)


def test_recognisers_tolerate_blur_and_noise(scenes: list[Scene]) -> None:
    def add_blur_and_noise(pixels: np.ndarray) -> np.ndarray:
        rng = np.random.Generator(np.random.Philox(key=int(pixels.sum())))
        soft = ndimage.gaussian_filter(pixels.astype(float), (0.8, 0.8, 0))
        return np.clip(soft + rng.normal(0, 8, soft.shape), 0, 255).astype(np.uint8)

    read = shares(scenes[:300], add_blur_and_noise)
    assert min(read.values()) >= 0.98, read


def test_recognisers_reject_what_was_not_prompted(scenes: list[Scene]) -> None:
    for scene in [scene for scene in scenes if scene.kind == "single"][:60]:
        thing, shown = scene.things[0], draw_pixels(scene)

        def scene_with(scene: Scene = scene, **changed: str) -> Scene:
            return replace(scene, things=(replace(scene.things[0], **changed),))

        other_shape = next(shape for shape in (*world.SHAPES, world.WUG) if shape != thing.shape)
        other_colour = next(colour for colour in world.COLOURS if colour != thing.colour)
        other_place = next(place for place in world.CENTRES if place != thing.position)
        verdict = recognise.judge(shown, scene_with(shape=other_shape))
        assert (verdict.shape, verdict.colour, verdict.position) == (False, True, True)
        verdict = recognise.judge(shown, scene_with(colour=other_colour))
        assert (verdict.shape, verdict.colour, verdict.position) == (True, False, True)
        verdict = recognise.judge(shown, scene_with(position=other_place))
        assert (verdict.shape, verdict.colour, verdict.position) == (True, True, False)
        assert not recognise.judge(shown, replace(scene, kind="count", things=scene.things * 2)).count
    for scene in [scene for scene in scenes if scene.relation is not None][:60]:
        turned = world.RELATIONS[scene.relation][2]
        assert not recognise.judge(draw_pixels(scene), replace(scene, relation=turned)).relation


def test_empty_image_and_noise_have_no_known_shape() -> None:
    scene = world.scene(0, 1)
    assert recognise.look(np.full((64, 64, 3), 128, np.uint8)) == []
    verdict = recognise.judge(np.full((64, 64, 3), 128, np.uint8), scene)
    assert verdict == recognise.Verdict(colour=False, shape=False, position=False, count=False, relation=True)
    rng = np.random.Generator(np.random.Philox(key=1))
    noise = rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)
    assert [seen.shape for seen in recognise.look(noise)][:1] == [recognise.UNKNOWN]


def test_data_set_is_written_deterministically(tmp_path: Path) -> None:
    make_world.main([str(tmp_path / "one"), "--count", "50", "--seed", "1"])
    make_world.main([str(tmp_path / "two"), "--count", "50", "--seed", "1"])
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(names) == 100
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    captions = (tmp_path / "one" / "00007.txt").read_text().splitlines()
    assert tuple(captions) == world.captions(world.scene(7, 1))


def test_wild_images_depend_only_on_their_number() -> None:
    assert np.array_equal(np.asarray(wild.wild(3, 1)), np.asarray(wild.wild(3, 1)))
    assert not np.array_equal(np.asarray(wild.wild(3, 1)), np.asarray(wild.wild(4, 1)))


def test_resumed_vae_training_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    pixels = train_vae.to_pixels(np.stack([draw_pixels(world.scene(index, 1))[24:40, 24:40] for index in range(2)]))
    whole, first, rest = (train_vae.Course(steps=3) for _ in range(3))
    losses = [whole.step(pixels)["l1"] for _ in range(3)]
    first.step(pixels)
    first.save(tmp_path / "state.safetensors")
    rest.load(tmp_path / "state.safetensors")
    assert [rest.step(pixels)["l1"] for _ in range(2)] == losses[1:]
    assert all(torch.equal(one, other) for one, other in zip(whole.average, rest.average, strict=True))
    assert not torch.equal(whole.average[0], whole.weights[0])


def test_standardised_latents_decode_as_before() -> None:
    vae = train_vae.build().eval()
    with torch.no_grad():
        vae.quant_conv.bias += torch.tensor([3.0, -2, 1, 0, -1, -2, -3, -4])
    pixels = train_vae.to_pixels(np.stack([draw_pixels(world.scene(index, 1)) for index in range(8)]))
    with torch.no_grad():
        before = vae.decode(vae.encode(pixels).latent_dist.mean).sample
        train_vae.standardise(vae, pixels)
        posterior = vae.encode(pixels).latent_dist
        after = vae.decode(posterior.mean).sample
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(posterior.mean.mean(dim=(0, 2, 3)), torch.zeros(4), rtol=0, atol=1e-4)
    total = posterior.mean.var(dim=(0, 2, 3)) + posterior.var.mean(dim=(0, 2, 3))
    torch.testing.assert_close(total, torch.ones(4), rtol=1e-3, atol=0)
