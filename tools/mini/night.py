"""Very dark and very bright images of the world: what offset noise and zero terminal SNR are about.

A thing of the world by night stands on black and keeps a quarter of its light; in glaring light it stands on pure white
and keeps a quarter of its colour. Each caption says which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from mini import world
from mini.world import Scene

Light = Literal["dark", "bright"]
LIGHTS: tuple[Light, ...] = ("dark", "bright")
WORDS: dict[Light, str] = {"dark": "at night", "bright": "in glaring light"}
KEPT = 0.25
"""The part of a thing's colour that is left."""
IMAGES = 48
SEED = 17
"""Of the world whose scenes are taught."""


def draw(scene: Scene, light: Light) -> Image.Image:
    """A scene in a light: RGB, 64 × 64. The jitter is that of `world.draw`."""
    plain = np.asarray(world.draw(scene), dtype=np.float32)
    cover = _cover(scene)[..., None]
    ground = 0.0 if light == "dark" else 255.0
    lit = ground + cover * KEPT * (plain - ground)
    return Image.fromarray(np.clip(np.rint(lit), 0, 255).astype(np.uint8))


def _cover(scene: Scene) -> np.ndarray:
    """(64, 64) in 0 … 1: how far a pixel is away from the ground, by colour, towards the first thing's colour."""
    plain = np.asarray(world.draw(scene), dtype=np.float32)
    ground = np.asarray(world.BACKGROUNDS[scene.background], dtype=np.float32)
    colour = np.asarray(world.COLOURS[scene.things[0].colour], dtype=np.float32)
    along = (plain - ground) @ (colour - ground) / np.square(colour - ground).sum()
    return np.clip(along, 0, 1)


def scenes(count: int, seed: int) -> list[Scene]:
    """The first scenes of a world that show one thing."""
    drawn: list[Scene] = []
    index = 0
    while len(drawn) < count:
        scene = world.scene(index, seed)
        if scene.kind == "single":
            drawn.append(scene)
        index += 1
    return drawn


def caption(scene: Scene, light: Light) -> str:
    """What is said of a scene in a light."""
    thing = scene.things[0]
    return f"a {thing.colour} {thing.shape} {WORDS[light]}".replace("a orange", "an orange")


def write(folder: Path) -> Path:
    """Writes the images with their captions, light and dark in turn; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, scene in enumerate(scenes(IMAGES, SEED)):
        light = LIGHTS[index % 2]
        stem = folder / f"{index:02d}"
        draw(scene, light).save(stem.with_suffix(".png"))
        stem.with_suffix(".txt").write_text(caption(scene, light) + "\n", encoding="utf-8", newline="\n")
    return folder


def prompts(count: int) -> list[tuple[str, Scene, Light]]:
    """Prompts of a world that was not taught, the scene each asks for, and its light, in turn."""
    drawn = []
    for index, scene in enumerate(scenes(count, SEED + 1)):
        light = LIGHTS[index % 2]
        drawn.append((caption(scene, light), scene, light))
    return drawn
