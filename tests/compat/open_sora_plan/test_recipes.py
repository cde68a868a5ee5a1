"""The recipes of LatteT2V: `check` finds nothing wrong with them, and the memory at their heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.assets import MODELS
from mezzotint.cli import main
from support.run_folders import logged
from support.shipped_recipes import TINY, predicted, write_films

Captured = pytest.CaptureFixture[str]

LATTE = (*TINY, "model.path=tiny-latte", "model.latte.text_encoder=null", "data.resolution=32", "data.path=films",
         "data.buckets.step=16", "data.clips.frames=5")  # fmt: skip


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("name", ["latte-17f", pytest.param("latte-65f", marks=pytest.mark.slow)])
def test_check_accepts_the_recipe(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_clip: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_films(Path("films"), write_clip)
    assert main(["check", name, *LATTE]) == 0, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "frames"), [("latte-17f", 17), pytest.param("latte-65f", 65, marks=pytest.mark.exhaustive)]
)
def test_memory_in_the_recipe_comment_matches_check(name: str, frames: int) -> None:
    """Embeddings come from files instead of T5, which takes no part in a step."""
    files = (
        "data.format=clip-list",
        "data.clip_list.text_embeddings=true",
        "data.captions.dropout=0",
        "run.preview.every=null",
    )
    predicted(name, (512, 512, frames), f"model.path={MODELS / name}", "model.latte.text_encoder=null", *files)


def test_small_recipe_trains_on_given_clips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_clip: Callable[..., Path]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_films(Path("films"), write_clip)
    assert main(["train", "tiny_clips_cpu", "data.path=films", "run.tensorboard=false"]) == 0
    losses = logged("runs/tiny_clips_cpu")
    assert len(losses) == 20
    assert sum(losses[-5:]) < sum(losses[:5])
