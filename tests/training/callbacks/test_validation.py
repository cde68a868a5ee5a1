"""Held-out loss: it does not affect training, and warns when it rises again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from mezzotint.errors import StorageError
from mezzotint.families.base import batch_latents
from mezzotint.families.sd import Family
from mezzotint.settings.base import Every
from mezzotint.stages import Batch, TextEmbedding
from mezzotint.training.callbacks._evaluating import spread
from mezzotint.training.callbacks.base import Action
from mezzotint.training.callbacks.validation import OverfitWarning, Validation
from mezzotint.training.loop import Trainer
from mezzotint.training.progress import Progress
from support.trainers import batch_of, digest, latents_at, step_batches, text_of, trainer_over

WITH_EMA = {"lr": 1e-3, "ema": {"rule": "constant", "decay": 0.9}}


def validation(trainer: Trainer, *batches: Batch, **others: Any) -> Validation:
    return Validation(
        others.pop("sets", {"loss": batches}),
        **{
            "every": Every(2, "steps"),
            "timesteps": 4,
            "seed": 7,
            "model": trainer.model,
            "device": torch.device("cpu"),
            "warn": pytest.fail,
        }
        | others,
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


def test_held_out_loss_does_not_depend_on_random_state(trainer: Trainer, held_out: Batch) -> None:
    first = validation(trainer, held_out).measure()
    torch.randn(5)
    torch.manual_seed(99)
    again = validation(trainer, held_out)
    assert again.measure() == first
    assert again.measure() == first
    assert set(first) == {
        f"val/loss{kind}{at}" for kind in ("", "_shadow") for at in ("", "_at/125", "_at/375", "_at/625", "_at/875")
    }


def test_validation_does_not_affect_training(held_out: Batch) -> None:
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


def test_held_out_loss_of_ema_follows_that_of_weights_slower(trainer: Trainer, held_out: Batch) -> None:
    callback = validation(trainer, held_out)
    before = callback.measure()
    assert before["val/loss"] == before["val/loss_shadow"]
    trainer.run()
    after = callback.measure()
    assert after["val/loss"] != before["val/loss"]
    assert after["val/loss_shadow"] not in (after["val/loss"], before["val/loss_shadow"])


def test_order_and_split_of_held_out_samples_change_only_rounding(trainer: Trainer, held_out: Batch) -> None:
    whole = validation(trainer, held_out).measure()
    parted = validation(trainer, rows(held_out, 2), rows(held_out, 1, 0)).measure()
    assert parted == pytest.approx(whole, rel=1e-5)
    assert validation(trainer, held_out, seed=8).measure()["val/loss"] != pytest.approx(whole["val/loss"], rel=1e-4)


def test_held_out_loss_is_the_unweighted_squared_error(trainer: Trainer, family: Family, held_out: Batch) -> None:
    plain = validation(trainer, held_out).measure()
    other = trainer_over(family, [], optim=WITH_EMA, objective={"loss": "huber", "min_snr_gamma": 1.0})
    assert validation(other, held_out).measure() == plain


def test_held_out_loss_is_mean_over_timesteps_and_near_one_untrained(trainer: Trainer, held_out: Batch) -> None:
    losses = validation(trainer, held_out).measure()
    at = [value for tag, value in losses.items() if tag.startswith("val/loss_at/")]
    assert losses["val/loss"] == pytest.approx(sum(at) / 4)
    assert 0.5 < losses["val/loss"] < 3.0


def test_held_out_moments_and_pixels_are_encoded_as_in_training(trainer: Trainer, held_out: Batch) -> None:
    pixels = torch.linspace(-1, 1, 3 * 3 * 64 * 64).reshape(3, 3, 64, 64)
    moments = trainer.model.family.encode_media(pixels)
    from_pixels = replace(held_out, latents=None, pixels=pixels)
    from_moments = replace(held_out, latents=None, moments=moments)
    x_0 = batch_latents(trainer.model.family, from_pixels, trainer.runtime.device)
    assert torch.equal(x_0, batch_latents(trainer.model.family, from_moments, trainer.runtime.device))
    assert validation(trainer, from_pixels).measure() == validation(trainer, from_moments).measure()


def test_held_out_loss_is_measured_at_start_interval_and_end(trainer: Trainer, held_out: Batch) -> None:
    seen: list[int] = []

    def refuse(step: int, values: Mapping[str, float]) -> None:
        seen.append(step)
        raise StorageError("the disk is full")

    trainer.callbacks = [*trainer.callbacks, validation(trainer, held_out, sink=refuse)]
    trainer.run()
    assert seen == [0, 2, 3]


def test_measurements_are_printed_and_rising_loss_is_a_warning(
    trainer: Trainer, held_out: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    warned: list[str] = []
    curve = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.51, 0.5, 0.52, 0.53, 0.55, 0.56, 0.57]
    callback = validation(trainer, held_out, say=said.append, warn=warned.append)
    monkeypatch.setattr(callback, "measure", lambda: {"val/loss": curve[len(said)], "val/loss_at/125": 9.0})
    for step in range(len(curve) - 1):
        callback.on_step(None, Progress(step=step, last_step=99))
    assert said[:2] == ["measured at step 0  val/loss 1.0000", "measured at step 1  val/loss 0.9000"]
    assert warned == [
        "val/loss rises: 0.5000 at step 7, 0.5600 now; it was lowest at step 5, with 0.5000. The model may be "
        "overfitting; an export of about that step may be better"
    ]
    gone_on = validation(trainer, held_out, say=said.append, warn=warned.append)
    gone_on.load(json.loads(json.dumps(callback.state())))
    monkeypatch.setattr(gone_on, "measure", lambda: {"val/loss": curve[-1]})
    gone_on.on_step(None, Progress(step=12, last_step=99))
    assert len(warned) == 1, "once, in a run that goes on as well"


def test_lowest_held_out_loss_requests_a_checkpoint(
    trainer: Trainer, held_out: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[dict[str, float]] = []
    callback = validation(trainer, held_out, keeps_best=True, sink=lambda _, losses: logged.append(dict(losses)))
    raw, average = [1.0, 2.0, 1.9, 0.1, 1.8], [1.0, 0.9, 0.95, float("nan"), 0.8]
    at = {f"val/loss_at/{t}": float(t) for t in (125, 375, 625, 875)}
    asked_for = []
    for step in range(5):
        measured = {"val/loss": raw[step], "val/loss_shadow": average[step], **at}
        monkeypatch.setattr(callback, "measure", lambda measured=measured: measured)
        asked_for.append(callback.on_step(None, Progress(step=step, last_step=99)) is Action.SAVE)
        kept = json.loads(json.dumps(callback.state()))
        callback = validation(trainer, held_out, keeps_best=step != 3, sink=callback.sink)
        callback.load(kept)
    assert asked_for == [False, True, False, False, False], "by the average; nothing is asked for before the first step"
    assert callback.measured == {1: 0.9, 2: 0.95, 4: 0.8}, "the same whether it is asked for or not"
    assert {tag: loss for tag, loss in logged[0].items() if "quartile" in tag} == {
        f"val/loss_at/quartile_{place}": 125.0 + 250 * place for place in range(4)
    }


def test_validation_is_due_with_an_interval_even_without_samples(trainer: Trainer, held_out: Batch) -> None:
    start = Progress(step=0, last_step=9)
    assert validation(trainer, held_out).due(start)
    assert validation(trainer).due(start)
    assert not validation(trainer, held_out, every=None).due(start)


def test_out_of_memory_skips_the_measurement_only(
    trainer: Trainer, held_out: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    callback = validation(trainer, held_out, warn=said.append)
    before = digest(trainer)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer.model.family, "predict", full)
    callback.on_step(None, Progress(step=4, last_step=9))
    assert said == ["held-out loss of step 4: skipped, not enough memory; training continues"]
    assert digest(trainer) == before


def test_held_out_timesteps_are_spread_evenly() -> None:
    assert spread(4, 1000) == (125, 375, 625, 875)
    assert spread(1, 1000) == (500,)
    assert spread(50, 10) == tuple(range(10))


def test_each_set_has_a_loss_and_held_out_sets_a_mean(trainer: Trainer, held_out: Batch) -> None:
    sets = {"loss": [rows(held_out, 0)], "faces": [rows(held_out, 1)], "train": [rows(held_out, 2)], "none": []}
    losses = validation(trainer, sets=sets).measure()
    alone = {name: validation(trainer, *batches).measure() for name, batches in sets.items() if batches}
    for name, values in alone.items():
        assert {tag: losses[tag.replace("val/loss", f"val/{name}")] for tag in values} == values
    for kind in ("", "_shadow"):
        assert losses[f"val/all{kind}"] == (losses[f"val/loss{kind}"] + losses[f"val/faces{kind}"]) / 2
    assert not any("none" in tag for tag in losses)


def warned_at(losses: list[float]) -> list[int]:
    """The measurements after which there is a message, counted from 1."""
    rising = OverfitWarning()
    return [number for number, loss in enumerate(losses, 1) if rising.take(number, {"val/loss": loss})]


FALL = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([*FALL, 0.6, 0.7, 0.8, 0.9, 1.0], []),  # eleven measurements are not enough
        ([*FALL, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3], [12]),  # once
        ([*FALL, 0.6, 0.7, 0.8, 0.9, 1.0, 0.7, 0.6, 0.55], []),  # falls again
        ([1.0 - 0.01 * n for n in range(30)], []),
        ([*FALL, *FALL, 0.45, 0.5, 0.55], []),  # the lowest is among the last five
        ([*FALL, *[0.6] * 10], []),  # a plain
        ([*FALL, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [12, 18]),  # again after a new lowest
    ],
)
def test_loss_has_turned_when_it_rises_above_its_minimum(losses: list[float], expected: list[int]) -> None:
    assert warned_at(losses) == expected


def test_resumed_run_does_not_repeat_the_warning() -> None:
    losses = [*FALL, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
    for stop in range(len(losses) + 1):
        first, second = OverfitWarning(), OverfitWarning()
        said = [sentence for n, loss in enumerate(losses[:stop]) for sentence in first.take(n, {"val/loss": loss})]
        second.load(json.loads(json.dumps(first.state())))
        rest = enumerate([*losses, 1.2][stop:], stop)
        said += [sentence for n, loss in rest for sentence in second.take(n, {"val/loss": loss})]
        assert len(said) == 1, stop
        assert "0.7000 at step 7, 1.1000 now; it was lowest at step 5, with 0.5000" in said[0]
