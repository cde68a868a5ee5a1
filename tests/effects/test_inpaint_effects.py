"""Rows of `data.inpaint`: the regions that an inpainting model learns to fill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from support.contradictions import contradiction
from support.mask_cases import red

Make = Callable[..., Any]


def regions(fed: Any) -> dict[str, list[Tensor]]:
    """The regions of each image, in the order of its visits."""
    of_key: dict[str, list[Tensor]] = {}
    for batch in fed.batches():
        for key, region in zip(batch.keys, batch.region, strict=True):
            of_key.setdefault(key, []).append(region)
    return of_key


# breaks if a region is not that of the mask as it is cropped, or is drawn once for all visits
@pytest.mark.effect("data.inpaint.masks")
def test_inpaint_masks_are_drawn_at_each_visit_or_those_of_files(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(40, 32), (32, 48), (32, 32)])
    assert feed(folder, captions__missing="empty").batches()[0].region is None
    drawn = regions(feed(folder, captions__missing="empty", inpaint__masks="random", inpaint__full=0, steps=6))
    again = regions(feed(folder, captions__missing="empty", inpaint__masks="random", inpaint__full=0, steps=6))
    for key, of_visits in drawn.items():
        assert {*torch.cat(of_visits).unique().tolist()} == {0, 255}
        assert len({one.numpy().tobytes() for one in of_visits}) > 1
        assert all(map(torch.equal, of_visits, again[key]))

    for name in ("000", "001"):
        Image.open(folder / f"{name}.png").getchannel("R").save(folder / f"{name}-masklabel.png")
    fed = feed(
        folder, mask__source="files", inpaint__masks="files", inpaint__full=0, crop="random", flip=0.5,
        buckets__shape="square", steps=4,
    )  # fmt: skip
    for batch in fed.batches():
        for key, region, channel in zip(batch.keys, batch.region, red(batch), strict=True):
            assert torch.equal(region, channel if key != "002.png" else torch.full_like(region, 255)), key
    assert "needs masks; write data.mask.source=files" in contradiction("data.inpaint.masks=files")


# breaks if the share does not reach the loader
@pytest.mark.effect("data.inpaint.full")
def test_inpaint_full_fills_whole_images_at_a_share_of_visits(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(32, 32)] * 4)
    usual = {"captions__missing": "empty", "inpaint__masks": "random", "steps": 50}

    def share(full: float) -> float:
        every = [one for of_visits in regions(feed(folder, inpaint__full=full, **usual)).values() for one in of_visits]
        return sum(bool((region == 255).all()) for region in every) / len(every)

    assert [share(0), share(1)] == [0, 1]
    assert share(0.5) == pytest.approx(0.5, abs=0.15)
    assert "has no effect with data.inpaint.masks=none" in contradiction("data.inpaint.full=0.5")
