"""First-frame conditioning in `sample` and previews, and its refusal for other models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.families.ltx import Family
from mezzotint.sampling.requests import Request
from mezzotint.settings.reading.read import read_text
from mezzotint.shapes import Size
from mezzotint.tasks.prompts import first_frames

WORDS = ("--prompt=a ball", "--steps=2", "--size=64x32", "model.weights=random")


def make_image(path: Path, colour: tuple[int, int, int]) -> Path:
    Image.new("RGB", (40, 40), colour).save(path)
    return path


def test_first_frame_is_refused_where_unsupported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_image(tmp_path / "red.png", (255, 0, 0))
    own = [*WORDS, f"sample.clip.first_frame={path}", f"--out={tmp_path / 'out'}"]
    for model, frames, code in (("tiny-ltx", 1, "E1480"), ("tiny-wan", 5, "E1480")):
        assert main(["sample", model, *own, f"sample.clip.frames={frames}"]) != 0
        assert code in capsys.readouterr().err
    (tmp_path / "red.png").write_bytes(b"no image")
    assert main(["sample", "tiny-ltx", *own, "sample.clip.frames=9"]) != 0
    assert "sample.clip.first_frame" in capsys.readouterr().err


@torch.no_grad()
def test_first_frame_latent_is_that_of_the_autoencoder(tmp_path: Path) -> None:
    path, family = make_image(tmp_path / "red.png", (255, 0, 0)), Family.tiny()
    recipe = read_text("schema: 1", overrides=[f"sample.clip.first_frame={path}"]).recipe
    requests = [Request("a", Size(64, 32, 9)), Request("b", Size(32, 32, 9)), Request("c", Size(64, 32, 9))]
    with_frames = first_frames.with_first_frames(family, lambda: family, requests, recipe)
    red = torch.tensor([1.0, -1.0, -1.0]).view(1, 3, 1, 1).expand(1, 3, 32, 64)
    mean = family.encode_media(red).chunk(2, dim=1)[0][:, :, None]
    assert [tuple(r.first_frame.shape) for r in with_frames if r.first_frame is not None] == [
        (1, 8, 1, 1, n) for n in (2, 1, 2)
    ]
    assert with_frames[0].first_frame is not None
    torch.testing.assert_close(with_frames[0].first_frame, mean)
    with pytest.raises(RecipeError, match="no following frames"):
        first_frames.refuse_first_frames(family, [Request("a", Size(64, 32))])
