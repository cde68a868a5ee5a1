"""Previews during training, which they do not affect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint import __version__, fault_injection
from mezzotint.families.sd import Family
from mezzotint.run_folder import RunFolder
from mezzotint.sampling import grids
from mezzotint.sampling.image_files import read_record
from mezzotint.sampling.requests import Request, embed_prompts
from mezzotint.settings.base import Every
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.training.callbacks.base import PreviewRequests
from mezzotint.training.callbacks.previews import Previews
from mezzotint.training.loop import Trainer
from mezzotint.training.progress import Progress
from support.trainers import batch_of, digest, latents_at, step_batches, text_of, trainer_over

WITH_EMA = {"lr": 1e-3, "ema": {"rule": "constant", "decay": 0.9}}
EVERY_2 = Every(2, "steps")


class Prompts:
    """The same requests at every step, until replaced. renewed: the steps before which a renewal was
    requested."""

    def __init__(self, requests: list[Request], every: Every | None = EVERY_2, at_start: bool = True) -> None:
        self.requests = requests
        self.every = every
        self.at_start = at_start
        self.renewed: list[int] = []

    def renew(self, step: int) -> None:
        self.renewed.append(step)

    def of_step(self, step: int) -> PreviewRequests:
        return PreviewRequests(self.requests, SampleSettings(steps=2, guidance=3.0))


TWO = [
    Request(prompt=prompt, size=Size(32, 24), seed=5, index=i) for i, prompt in enumerate(("a red kite", "ein Fuß ☃"))
]


def previews(trainer: Trainer, folder: RunFolder, **others: Any) -> Previews:
    return Previews(
        folder,
        others.pop("prompts", None) or Prompts(others.pop("requests", TWO)),
        **{
            "weights": "both",
            "model": trainer.model,
            "device": torch.device("cpu"),
            "decode": trainer.model.family.decode_media,
            "warn": pytest.fail,
        }
        | others,
    )


def test_previews_start_at_step_0_and_do_not_affect_training(folder: RunFolder) -> None:
    ends = []
    for shown in (False, True):
        family = Family.tiny()
        steps = [step_batches([batch_of(latents_at(1, 2), text_of(family, 2))], step) for step in range(3)]
        trainer = trainer_over(family, steps, optim=WITH_EMA)
        family.parts()["denoiser"].train()
        if shown:
            trainer.callbacks = [*trainer.callbacks, previews(trainer, folder)]
        trainer.run()
        ends.append(([r.loss for r in trainer.callbacks[0].seen], digest(trainer)))
    assert ends[0] == ends[1]
    names = sorted(p.relative_to(folder.samples).as_posix() for p in folder.samples.rglob("*.png"))
    drawn = ["00-raw.png", "00-shadow.png", "01-raw.png", "01-shadow.png"]
    assert names == ["grid.png", *(f"step-0000000{step}/{name}" for step in (0, 2, 3) for name in drawn)]

    def pixels(name: str) -> bytes:
        with Image.open(folder.samples / name) as image:
            return image.tobytes()

    assert pixels("step-00000000/00-raw.png") == pixels("step-00000000/00-shadow.png")
    assert pixels("step-00000003/00-raw.png") != pixels("step-00000003/00-shadow.png")
    assert pixels("step-00000000/00-raw.png") != pixels("step-00000003/00-raw.png")


def test_preview_metadata_records_its_settings(trainer: Trainer, folder: RunFolder) -> None:
    previews(trainer, folder).on_step(None, Progress(step=20, last_step=99))
    with Image.open(folder.samples / "step-00000020" / "01-shadow.png") as image:
        assert image.size == (32, 24)
        assert read_record(image) == {
            "prompt": "ein Fuß ☃", "negative_prompt": "", "size": "32x24", "seed": "5", "index": "1", "steps": "2",
            "guidance": "3.0", "guidance_rescale": "0.0", "solver": "ddim", "spacing": "auto", "training_step": "20",
            "weights": "shadow", "mezzotint": __version__, "model_name": "step-00000020-ema",
        }  # fmt: skip


def test_cached_embeddings_and_separate_vae_give_the_same_previews(
    trainer: Trainer, folder: RunFolder, tmp_path: Path
) -> None:
    whole = previews(trainer, folder)
    whole.on_step(None, Progress(step=1, last_step=9))
    bare = Family.tiny()
    parts = bare.parts()
    ready = embed_prompts(trainer.model.family, TWO)
    decode = trainer.model.family.decode_media
    for part in ("text_encoder", "vae"):
        del parts[part]  # type: ignore[attr-defined]
    other = RunFolder(tmp_path / "cached").open()
    model = replace(trainer.model, family=bare)
    previews(trainer, other, model=model, requests=ready, decode=decode).on_step(None, Progress(step=1, last_step=9))
    for path in folder.samples.glob("step-*/*.png"):
        assert path.read_bytes() == (other.samples / path.relative_to(folder.samples)).read_bytes()


def test_grid_has_a_column_per_step_without_rolled_back_ones(trainer: Trainer, folder: RunFolder) -> None:
    callback = previews(trainer, folder)
    widths = []
    for step in (2, 4, 4, 3):
        callback.on_step(None, Progress(step=step, last_step=9))
        with Image.open(folder.samples / "grid.png") as image:
            widths.append(image.width)
    assert widths[0] < widths[1] == widths[2] == widths[3]
    (folder.samples / "step-00000002" / "00-raw.png").write_bytes(b"not an image")
    callback.on_step(None, Progress(step=3, last_step=9))


def test_previews_reach_the_image_sink(trainer: Trainer, folder: RunFolder) -> None:
    seen: list[tuple[int, str, tuple[int, ...], np.dtype[Any]]] = []
    callback = previews(trainer, folder, sink=lambda step, name, p: seen.append((step, name, p.shape, p.dtype)))
    callback.on_step(None, Progress(step=2, last_step=9))
    assert [name for _, name, _, _ in seen] == ["0/raw", "1/raw", "0/shadow", "1/shadow"]
    assert seen[0] == (2, "0/raw", (24, 32, 3), np.dtype(np.uint8))


@pytest.mark.parametrize(("weights", "names"), [("raw", {"00-raw.png"}), ("ema", {"00-shadow.png"})])
def test_previews_use_only_requested_weights(
    weights: str, names: set[str], trainer: Trainer, folder: RunFolder
) -> None:
    one = [Request(prompt="a", size=Size(32, 32))]
    previews(trainer, folder, weights=weights, requests=one).on_step(None, Progress(step=2, last_step=9))
    assert {path.name for path in folder.samples.glob("step-*/*")} == names


def test_out_of_memory_skips_the_preview_only(trainer: Trainer, folder: RunFolder) -> None:
    def full(latents: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    said: list[str] = []
    before = digest(trainer)
    previews(trainer, folder, decode=full, warn=said.append).on_step(None, Progress(step=2, last_step=9))
    assert said == ["previews of step 2: skipped, not enough memory; training continues"]
    assert digest(trainer) == before
    assert not list(folder.samples.iterdir())


def test_unwritable_preview_is_a_storage_error_without_ending_training(trainer: Trainer, folder: RunFolder) -> None:
    folder.samples.rmdir()
    folder.samples.write_text("in the way")
    said: list[str] = []
    trainer.host.warn = said.append
    trainer.callbacks = [*trainer.callbacks, previews(trainer, folder)]
    trainer.run()
    assert trainer.progress.step == 3
    assert "previews cannot be written" in said[0]


def test_preview_fault_point_is_reached(trainer: Trainer, folder: RunFolder) -> None:
    fault_injection.arm("preview.begin@1:raise")
    with pytest.raises(RuntimeError, match=r"preview\.begin"):
        previews(trainer, folder).on_step(None, Progress(step=2, last_step=9))


def test_linked_previews_receive_a_new_interval(trainer: Trainer, folder: RunFolder) -> None:
    prompts = Prompts([], every=Every(2, "steps"), at_start=False)
    pair = [previews(trainer, folder, prompts=prompts), previews(trainer, folder, prompts=prompts, draws=False)]

    def due() -> list[list[int]]:
        return [[step for step in range(7) if o.due(Progress(step=step, last_step=99))] for o in pair]

    assert due() == [[2, 4, 6]] * 2
    prompts.every = Every(3, "steps")
    for callback in pair:
        assert callback.on_all_ranks
        callback.on_step(None, Progress(step=2, last_step=99))
    assert due() == [[3, 6]] * 2
    assert prompts.renewed == [2, 2]
    prompts.every = None
    pair[1].on_step(None, Progress(step=3, last_step=99))
    assert due()[1] == []


def test_grid_labels_earlier_images_with_their_prompts(
    trainer: Trainer, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[dict[str, Any]] = []
    monkeypatch.setattr(grids, "sheet", lambda cells, **others: sheets.append({"cells": cells, **others}))
    monkeypatch.setattr(grids, "save", lambda image, path: None)
    prompts = Prompts([replace(TWO[0], guidance=2.0), replace(TWO[0], guidance=5.0)])
    callback = previews(trainer, folder, prompts=prompts, weights="raw")
    callback.on_step(None, Progress(step=1, last_step=9))
    prompts.requests = [replace(TWO[1], guidance=2.0), replace(TWO[0], guidance=5.0)]
    callback.on_step(None, Progress(step=2, last_step=9))
    assert sheets[0]["rows"] == ["a red kite · guidance 2", "a red kite · guidance 5"]
    assert sheets[0]["notes"] == [[""], [""]]
    assert sheets[1]["rows"] == ["ein Fuß ☃ · guidance 2", "a red kite · guidance 5"]
    assert sheets[1]["notes"] == [["a red kite · guidance 2", ""], ["", ""]]
    assert [[cell is not None for cell in row] for row in sheets[1]["cells"]] == [[True, True], [True, True]]
    earlier = folder.samples / "step-00000001" / "00-raw.png"
    earlier.rename(folder.path.parent / "mine.png")
    earlier.symlink_to(folder.path.parent / "mine.png")
    callback.on_step(None, Progress(step=3, last_step=9))
    assert sheets[2]["cells"][0][0] is None, "links out of the folder are not followed"


def test_requests_with_other_solvers_are_sampled_separately(trainer: Trainer, folder: RunFolder) -> None:
    both = [replace(TWO[0], solver="euler-a"), replace(TWO[0], solver=None), replace(TWO[0], solver="ddim")]
    previews(trainer, folder, requests=both, weights="raw").on_step(None, Progress(step=1, last_step=9))
    drawn = []
    for index in range(3):
        with Image.open(folder.samples / "step-00000001" / f"{index:02d}-raw.png") as image:
            drawn.append((read_record(image)["solver"], image.tobytes()))
    assert [solver for solver, _ in drawn] == ["euler-a", "ddim", "ddim"]
    assert drawn[0][1] != drawn[1][1] == drawn[2][1]


def test_black_previews_are_explained(trainer: Trainer, folder: RunFolder) -> None:
    said: list[str] = []
    overflown: Any = lambda latents: [torch.full((3, 24, 32), torch.nan) for _ in latents]  # noqa: E731
    previews(trainer, folder, weights="raw", decode=overflown, warn=said.append).on_step(
        None, Progress(step=2, last_step=9)
    )
    assert len(said) == len(TWO)
    assert all("not finite and is black" in one for one in said)
    assert all("run.vae_dtype=fp32" in one for one in said)
    assert list(folder.samples.glob("step-*/*.png")), "a preview that shows nothing is still written"
