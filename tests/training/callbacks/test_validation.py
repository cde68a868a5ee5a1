"""Held-out loss and previews: they use the networks and leave no trace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint import __version__, fault_injection
from mezzotint.errors import StorageError
from mezzotint.families.sd import Family
from mezzotint.recipe.base import Every
from mezzotint.recipe.sections.sample import SampleSettings
from mezzotint.run_folder import RunFolder
from mezzotint.sampling import grids
from mezzotint.sampling.pictures import told_by
from mezzotint.sampling.sample import Request, embedded
from mezzotint.shapes import Size
from mezzotint.stages import Batch, TextEmbedding
from mezzotint.training.callbacks.base import PreviewRequests
from mezzotint.training.callbacks.previews import Previews, PreviewsElsewhere
from mezzotint.training.callbacks.validation import Validation, spread
from mezzotint.training.latents import latents_of
from mezzotint.training.progress import Progress
from mezzotint.training.trainer import Trainer

Make = Callable[..., Any]
CPU = torch.device("cpu")
WITH_EMA = {"lr": 1e-3, "ema": {"rule": "constant", "decay": 0.9}}


def text_of(family: Family, n: int) -> TextEmbedding:
    with torch.no_grad():
        return TextEmbedding(family.encode_text([f"picture {i}" for i in range(n)]).states)


@pytest.fixture(scope="module")
def _model() -> Family:
    return Family.tiny()


@pytest.fixture
def family(_model: Family) -> Iterator[Family]:
    """One model for all tests, its weights put back after each."""
    kept = {name: {k: t.clone() for k, t in part.state_dict().items()} for name, part in _model.parts().items()}
    yield _model
    for name, part in _model.parts().items():
        part.load_state_dict(kept[name])
        part.eval()


@pytest.fixture
def trainer(family: Family, trainer_over: Make, batch_of: Make, step_batches: Make, latents_at: Make) -> Trainer:
    steps = [step_batches([batch_of(latents_at(1, 2), text_of(family, 2))], step) for step in range(3)]
    made: Trainer = trainer_over(family, steps, optim=WITH_EMA)
    return made


@pytest.fixture
def held_out(family: Family, batch_of: Make, latents_at: Make) -> Batch:
    batch: Batch = batch_of(latents_at(9, 3), text_of(family, 3))
    return batch


def validation(trainer: Trainer, *batches: Batch, **given: Any) -> Validation:
    return Validation(
        given.pop("sets", {"loss": batches}),
        **{
            "every": Every(2, "steps"),
            "timesteps": 4,
            "seed": 7,
            "model": trainer.model,
            "device": CPU,
            "sinks": [],
            "warn": pytest.fail,
            "tell": lambda text: None,
        }
        | given,
    )


def rows(batch: Batch, *which: int) -> Batch:
    index = list(which)
    assert batch.latents is not None
    assert batch.text is not None
    return replace(
        batch,
        keys=tuple(batch.keys[i] for i in index),
        captions=tuple(batch.captions[i] for i in index),
        latents=batch.latents[index],
        text=TextEmbedding(batch.text.states[index]),
        posterior_keys=batch.posterior_keys[index],
        positions=batch.positions[index],
    )


def digest(trainer: Trainer) -> str:
    found = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for part in trainer.model.family.parts().values():
        found.update(str([module.training for module in part.modules()]).encode())
        for parameter in part.parameters():
            found.update(parameter.detach().numpy().tobytes())
            found.update(str(parameter.grad is None).encode())
    for tensor in trainer.tensors().values():
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


def test_held_out_loss_is_the_same_when_measured_twice_whatever_was_drawn_between(
    trainer: Trainer, held_out: Batch
) -> None:
    first = validation(trainer, held_out).measure()
    torch.randn(5)
    torch.manual_seed(99)
    again = validation(trainer, held_out)
    assert again.measure() == first
    assert again.measure() == first
    assert set(first) == {
        f"val/loss{kind}{at}" for kind in ("", "_shadow") for at in ("", "_at/125", "_at/375", "_at/625", "_at/875")
    }


def test_measuring_leaves_no_trace_and_a_run_goes_the_same_way(
    trainer_over: Make, batch_of: Make, step_batches: Make, latents_at: Make, held_out: Batch
) -> None:
    ends = []
    for measured in (False, True):
        family = Family.tiny()
        steps = [step_batches([batch_of(latents_at(1, 2), text_of(family, 2))], step) for step in range(3)]
        trainer = trainer_over(family, steps, optim=WITH_EMA)
        family.parts()["denoiser"].train()
        if measured:
            before = digest(trainer)
            validation(trainer, held_out).measure()
            assert digest(trainer) == before
            trainer.callbacks = [*trainer.callbacks, validation(trainer, held_out, every=Every(1, "steps"))]
        trainer.run()
        ends.append(([r.loss for r in trainer.callbacks[0].seen], digest(trainer)))
    assert ends[0] == ends[1]


def test_held_out_loss_follows_the_weights_and_the_average_follows_slower(trainer: Trainer, held_out: Batch) -> None:
    callback = validation(trainer, held_out)
    before = callback.measure()
    assert before["val/loss"] == before["val/loss_shadow"]
    trainer.run()
    after = callback.measure()
    assert after["val/loss"] != before["val/loss"]
    assert after["val/loss_shadow"] not in (after["val/loss"], before["val/loss_shadow"])


def test_the_order_and_split_of_held_out_samples_change_nothing_but_rounding(trainer: Trainer, held_out: Batch) -> None:
    whole = validation(trainer, held_out).measure()
    parted = validation(trainer, rows(held_out, 2), rows(held_out, 1, 0)).measure()
    assert parted == pytest.approx(whole, rel=1e-5)
    assert validation(trainer, held_out, seed=8).measure()["val/loss"] != pytest.approx(whole["val/loss"], rel=1e-4)


def test_held_out_loss_is_the_plain_squared_error_whatever_the_objective_weighs(
    trainer: Trainer, family: Family, trainer_over: Make, held_out: Batch
) -> None:
    plain = validation(trainer, held_out).measure()
    other = trainer_over(family, [], optim=WITH_EMA, objective={"loss": "huber", "min_snr_gamma": 1.0})
    assert validation(other, held_out).measure() == plain


def test_held_out_loss_is_the_mean_over_timesteps_and_near_one_without_training(
    trainer: Trainer, held_out: Batch
) -> None:
    found = validation(trainer, held_out).measure()
    at = [value for tag, value in found.items() if tag.startswith("val/loss_at/")]
    assert found["val/loss"] == pytest.approx(sum(at) / 4)
    assert 0.5 < found["val/loss"] < 3.0


def test_moments_and_pixels_are_encoded_as_in_training(trainer: Trainer, held_out: Batch) -> None:
    pixels = torch.linspace(-1, 1, 3 * 3 * 64 * 64).reshape(3, 3, 64, 64)
    moments = trainer.model.family.encode_media(pixels)
    from_pixels = replace(held_out, latents=None, pixels=pixels)
    from_moments = replace(held_out, latents=None, moments=moments)
    x_0 = latents_of(trainer.model.family, from_pixels, CPU)
    assert torch.equal(x_0, latents_of(trainer.model.family, from_moments, CPU))
    assert validation(trainer, from_pixels).measure() == validation(trainer, from_moments).measure()


def test_held_out_loss_reaches_the_sinks_at_the_start_in_between_and_at_the_end(
    trainer: Trainer, held_out: Batch
) -> None:
    seen: list[tuple[int, float]] = []

    def refuse(step: int, values: Mapping[str, float]) -> None:
        raise StorageError("the disk is full")

    def keep(step: int, values: Mapping[str, float]) -> None:
        seen.append((step, values["val/loss"]))

    trainer.callbacks = [*trainer.callbacks, validation(trainer, held_out, sinks=[refuse, keep])]
    trainer.run()
    assert [step for step, _ in seen] == [0, 2, 3]


def test_each_measurement_is_said_and_a_loss_that_rises_again_is_a_warning(
    trainer: Trainer, held_out: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    warned: list[str] = []
    curve = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.51, 0.5, 0.52, 0.53, 0.55, 0.56, 0.57]
    callback = validation(trainer, held_out, tell=told.append, warn=warned.append)
    monkeypatch.setattr(callback, "measure", lambda: {"val/loss": curve[len(told)], "val/loss_at/125": 9.0})
    for step in range(len(curve) - 1):
        callback.on_step(None, Progress(step=step, last_step=99))
    assert told[:2] == ["measured at step 0  val/loss 1.0000", "measured at step 1  val/loss 0.9000"]
    assert warned == [
        "val/loss rises: 0.5000 at step 7, 0.5600 now; it was lowest at step 5, with 0.5000: from there on the model "
        "may be learning its pictures by heart, and an export of about then may draw better"
    ]
    gone_on = validation(trainer, held_out, tell=told.append, warn=warned.append)
    gone_on.load(json.loads(json.dumps(callback.state())))
    monkeypatch.setattr(gone_on, "measure", lambda: {"val/loss": curve[-1]})
    gone_on.on_step(None, Progress(step=12, last_step=99))
    assert len(warned) == 1, "once, in a run that goes on as well"


def test_without_held_out_samples_or_interval_nothing_is_due(trainer: Trainer, held_out: Batch) -> None:
    start = Progress(step=0, last_step=9)
    assert validation(trainer, held_out).due(start)
    assert not validation(trainer).due(start)
    assert not validation(trainer, held_out, every=None).due(start)


def test_too_little_memory_costs_the_measurement_and_not_the_run(
    trainer: Trainer, held_out: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    callback = validation(trainer, held_out, warn=said.append)
    before = digest(trainer)

    def full(*given: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer.model.family, "predict", full)
    callback.on_step(None, Progress(step=4, last_step=9))
    assert said == ["held-out loss of step 4: left out, the memory does not suffice; training goes on"]
    assert digest(trainer) == before


def test_timesteps_are_spread_evenly_over_the_schedule() -> None:
    assert spread(4, 1000) == (125, 375, 625, 875)
    assert spread(1, 1000) == (500,)
    assert spread(50, 10) == tuple(range(10))


EVERY_2 = Every(2, "steps")


class Prompts:
    """The same requests at every step, until others are put in their place. renewed: the steps before which it was
    asked to look anew."""

    def __init__(self, requests: list[Request], every: Every | None = EVERY_2, at_start: bool = True) -> None:
        self.requests = requests
        self.every = every
        self.at_start = at_start
        self.renewed: list[int] = []

    def renew(self, step: int) -> None:
        self.renewed.append(step)

    def wanted(self, step: int) -> PreviewRequests:
        return PreviewRequests(self.requests, SampleSettings(steps=2, guidance=3.0))


TWO = [
    Request(prompt=prompt, size=Size(32, 24), seed=5, index=i) for i, prompt in enumerate(("a red kite", "ein Fuß ☃"))
]


def previews(trainer: Trainer, folder: RunFolder, **given: Any) -> Previews:
    return Previews(
        folder,
        given.pop("prompts", None) or Prompts(given.pop("requests", TWO)),
        **{
            "weights": "both",
            "model": trainer.model,
            "device": CPU,
            "decode": trainer.model.family.decode_media,
            "warn": pytest.fail,
        }
        | given,
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run").open()


def test_previews_are_drawn_from_step_0_on_and_leave_no_trace(
    trainer_over: Make, batch_of: Make, step_batches: Make, latents_at: Make, folder: RunFolder
) -> None:
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


def test_a_picture_carries_its_settings(trainer: Trainer, folder: RunFolder) -> None:
    previews(trainer, folder).on_step(None, Progress(step=20, last_step=99))
    with Image.open(folder.samples / "step-00000020" / "01-shadow.png") as image:
        assert image.size == (32, 24)
        assert told_by(image) == {
            "prompt": "ein Fuß ☃", "negative_prompt": "", "size": "32x24", "seed": "5", "index": "1", "steps": "2",
            "guidance": "3.0", "guidance_rescale": "0.0", "solver": "ddim", "spacing": "auto", "training_step": "20",
            "weights": "shadow", "mezzotint": __version__, "model_name": "step-00000020-ema",
        }  # fmt: skip


def test_embeddings_made_before_and_a_vae_loaded_apart_draw_the_same_pictures(
    trainer: Trainer, folder: RunFolder, tmp_path: Path
) -> None:
    whole = previews(trainer, folder)
    whole.on_step(None, Progress(step=1, last_step=9))
    bare = Family.tiny()
    parts = bare.parts()
    ready = embedded(trainer.model.family, TWO)
    decode = trainer.model.family.decode_media
    for part in ("text_encoder", "vae"):
        del parts[part]  # type: ignore[attr-defined]
    other = RunFolder(tmp_path / "cached").open()
    model = replace(trainer.model, family=bare)
    previews(trainer, other, model=model, requests=ready, decode=decode).on_step(None, Progress(step=1, last_step=9))
    for path in folder.samples.glob("step-*/*.png"):
        assert path.read_bytes() == (other.samples / path.relative_to(folder.samples)).read_bytes()


def test_the_grid_has_a_column_a_step_and_none_of_a_future_that_was_undone(trainer: Trainer, folder: RunFolder) -> None:
    callback = previews(trainer, folder)
    widths = []
    for step in (2, 4, 4, 3):
        callback.on_step(None, Progress(step=step, last_step=9))
        with Image.open(folder.samples / "grid.png") as image:
            widths.append(image.width)
    assert widths[0] < widths[1] == widths[2] == widths[3]
    (folder.samples / "step-00000002" / "00-raw.png").write_bytes(b"not a picture")
    callback.on_step(None, Progress(step=3, last_step=9))


def test_pictures_reach_the_sinks(trainer: Trainer, folder: RunFolder) -> None:
    seen: list[tuple[int, str, tuple[int, ...], np.dtype[Any]]] = []
    callback = previews(trainer, folder, sinks=[lambda step, name, p: seen.append((step, name, p.shape, p.dtype))])
    callback.on_step(None, Progress(step=2, last_step=9))
    assert [name for _, name, _, _ in seen] == ["0/raw", "1/raw", "0/shadow", "1/shadow"]
    assert seen[0] == (2, "0/raw", (24, 32, 3), np.dtype(np.uint8))


@pytest.mark.parametrize(("weights", "names"), [("raw", {"00-raw.png"}), ("ema", {"00-shadow.png"})])
def test_only_the_weights_asked_for_draw(weights: str, names: set[str], trainer: Trainer, folder: RunFolder) -> None:
    one = [Request(prompt="a", size=Size(32, 32))]
    previews(trainer, folder, weights=weights, requests=one).on_step(None, Progress(step=2, last_step=9))
    assert {path.name for path in folder.samples.glob("step-*/*")} == names


def test_too_little_memory_costs_the_preview_and_not_the_run(trainer: Trainer, folder: RunFolder) -> None:
    def full(latents: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    said: list[str] = []
    before = digest(trainer)
    previews(trainer, folder, decode=full, warn=said.append).on_step(None, Progress(step=2, last_step=9))
    assert said == ["previews of step 2: left out, the memory does not suffice; training goes on"]
    assert digest(trainer) == before
    assert not list(folder.samples.iterdir())


def test_a_disk_that_refuses_previews_is_a_storage_error_that_training_survives(
    trainer: Trainer, folder: RunFolder
) -> None:
    folder.samples.rmdir()
    folder.samples.write_text("in the way")
    said: list[str] = []
    trainer.host.warn = said.append
    trainer.callbacks = [*trainer.callbacks, previews(trainer, folder)]
    trainer.run()
    assert trainer.progress.step == 3
    assert "previews cannot be written" in said[0]


def test_the_preview_probe_is_reached(trainer: Trainer, folder: RunFolder) -> None:
    fault_injection.arm("preview.begin@1:raise")
    with pytest.raises(RuntimeError, match=r"preview\.begin"):
        previews(trainer, folder).on_step(None, Progress(step=2, last_step=9))


# --- several sets, prompts that change --------------------------------------------------------------------------------


def test_each_set_has_its_loss_and_those_that_are_not_trained_their_mean(trainer: Trainer, held_out: Batch) -> None:
    sets = {"loss": [rows(held_out, 0)], "faces": [rows(held_out, 1)], "train": [rows(held_out, 2)], "none": []}
    found = validation(trainer, sets=sets).measure()
    alone = {name: validation(trainer, *batches).measure() for name, batches in sets.items() if batches}
    for name, values in alone.items():
        assert {tag: found[tag.replace("val/loss", f"val/{name}")] for tag in values} == values
    for kind in ("", "_shadow"):
        assert found[f"val/all{kind}"] == (found[f"val/loss{kind}"] + found[f"val/faces{kind}"]) / 2
    assert not any("none" in tag for tag in found)
    assert not validation(trainer, sets={"none": []}).due(Progress(step=0, last_step=9))


def test_previews_elsewhere_hear_of_a_new_interval_when_these_do(trainer: Trainer, folder: RunFolder) -> None:
    prompts = Prompts([], every=Every(2, "steps"), at_start=False)
    pair = [previews(trainer, folder, prompts=prompts), PreviewsElsewhere(prompts)]

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


def test_a_grid_says_under_earlier_pictures_what_they_were_drawn_from(
    trainer: Trainer, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheets: list[dict[str, Any]] = []
    monkeypatch.setattr(grids, "sheet", lambda cells, **given: sheets.append({"cells": cells, **given}))
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


def test_requests_of_other_solvers_are_drawn_apart(trainer: Trainer, folder: RunFolder) -> None:
    both = [replace(TWO[0], solver="euler-a"), replace(TWO[0], solver=None), replace(TWO[0], solver="ddim")]
    previews(trainer, folder, requests=both, weights="raw").on_step(None, Progress(step=1, last_step=9))
    found = []
    for index in range(3):
        with Image.open(folder.samples / "step-00000001" / f"{index:02d}-raw.png") as image:
            found.append((told_by(image)["solver"], image.tobytes()))
    assert [solver for solver, _ in found] == ["euler-a", "ddim", "ddim"]
    assert found[0][1] != found[1][1] == found[2][1]
