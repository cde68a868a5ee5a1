"""Settings of short runs of every flow-matching family on the tiny models of the parity records, and clips for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow"
OWN: dict[str, dict[str, Any]] = {"sd3": {"model__sd3__t5_tokens": 16}, "flux": {"model__flux__t5_tokens": 16}}
DISTILLED = {
    "z-image": {"model__z_image__distilled": True, "model__z_image__text_tokens": 48},
    "qwen-image": {"model__qwen_image__text_tokens": 48}, "flux2": {"model__flux2__text_tokens": 48},
    "chroma": {"model__chroma__text_tokens": 16}, "krea2": {"model__krea2__text_tokens": 16},
    "wan": {"model__wan__text_tokens": 16},
    "ltx": {"model__ltx__text_tokens": 16},
}  # fmt: skip
CACHED = {
    "data__cache__latents": True, "data__cache__text": True, "data__buckets__step": 16, "data__batch_size": 2,
    "data__buckets__shape": "square", "data__flip": 0, "data__crop": "center", "run__steps": 4, "run__save__every": 2,
    "optim__ema__rule": "none", "sample__prompts": ["a red circle"], "sample__steps": 2, "sample__size": [48, 48],
}  # fmt: skip


ANIMATING = ("wan-i2v", "wan-i2v-a14b")
"""Image-to-video models of `wan`."""
CLIPS = {"wan": 5, "ltx": 9, **dict.fromkeys(ANIMATING, 5)}
"""Video models, and how many frames are trained."""


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    """Four clips of ten frames with captions."""
    folder = tmp_path_factory.mktemp("films")
    for number in range(4):
        write_clip(folder / f"{number}.mp4", 10, size=(48, 32))
        (folder / f"{number}.txt").write_text(f"a ball, number {number}")
    return folder


def clip_settings(name: str, clips: Path) -> dict[str, Any]:
    """Further settings of a run over clips; none for families of images."""
    if name not in CLIPS:
        return {}
    return {
        "data__path": clips, "data__format": "videofolder", "data__clips__frames": CLIPS[name], "data__resolution": 32,
        "data__buckets__step": 32, "sample__size": [32, 32],
    }  # fmt: skip


def settings_of(name: str) -> dict[str, Any]:
    """Settings of a run of a family, or of one of `ANIMATING` without its model."""
    name = "wan" if name in ANIMATING else name
    folder = RECORDS / name.replace("-", "_").replace("flux2", "flux2_klein") / "model"
    own = OWN.get(name, {}) | DISTILLED.get(name, {})
    return {"model__family": name, "model__path": folder, "model__weights": "files"} | CACHED | own
