"""LatteT2V in the trainer: clips and stills in one loss, gradient checkpointing with exempt pairs, overfitting two
clips."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.families.base import batch_latents
from mezzotint.runtimes.base import recompute_blocks
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.run import RecomputeSettings
from mezzotint.stages import Batch, TextEmbedding
from support.trainers import batch_of, step_batches, trainer_over


@pytest.fixture(scope="module")
def family() -> Family:
    return Family.tiny(seed=1)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def text_of(family: Family, *captions: str) -> TextEmbedding:
    with torch.no_grad():
        return family.encode_text(captions)


def joint(family: Family, clips: int = 2, joined_images: int = 2) -> Batch:
    """Clips of two latent frames with stills, all encoded."""
    words = [f"a cat and {n} dogs" for n in range(clips * joined_images)]
    beside = batch_of(noise(clips * joined_images, 4, 4, 4, seed=1), text_of(family, *words))
    return replace(batch_of(noise(clips, 4, 2, 4, 4), text_of(family, *["a red ball"] * clips)), joined_images=beside)


def test_stills_follow_the_frames_of_their_clip(family: Family) -> None:
    batch = joint(family)
    result = batch_latents(family, batch, torch.device("cpu"))
    assert result.shape == (2, 4, 4, 4, 4)
    assert batch.latents is not None
    assert torch.equal(result[:, :, :2], batch.latents)
    assert batch.joined_images is not None
    assert batch.joined_images.latents is not None
    for clip in range(2):
        for still in range(2):
            assert torch.equal(result[clip, :, 2 + still], batch.joined_images.latents[2 * clip + still])


def test_clips_and_stills_are_encoded_separately(family: Family) -> None:
    pixels, joined_images = noise(1, 3, 5, 32, 32).clamp(-1, 1), noise(2, 3, 32, 32, seed=2).clamp(-1, 1)
    batch = joint(family, clips=1)
    assert batch.joined_images is not None
    beside = replace(batch.joined_images, latents=None, pixels=joined_images)
    result = batch_latents(
        family, replace(batch, latents=None, pixels=pixels, joined_images=beside), torch.device("cpu")
    )
    alone = batch_latents(family, replace(batch, latents=None, pixels=pixels, joined_images=None), torch.device("cpu"))
    assert result.shape == (1, 4, 4, 4, 4)
    assert torch.equal(result[:, :, :2], alone)
    image = replace(beside, joined_images=None)
    assert torch.equal(result[0, :, 2:].transpose(0, 1), batch_latents(family, image, torch.device("cpu")))


def test_sample_loss_is_the_mean_over_frames_and_stills(family: Family) -> None:
    batch = joint(family)
    trainer = trainer_over(family, [step_batches([batch], 0)], run={"device": "cpu", "seed": 5})
    loss, level = trainer.train_step.loss(batch, 0)
    objective = Objective(ObjectiveSettings(), family.schedule, family.prediction)
    x_0 = batch_latents(family, batch, torch.device("cpu"))
    noised = objective.noise(x_0, StepDraws.at(5, 0, batch.positions.numpy(), "cpu"))
    assert batch.text is not None
    assert batch.joined_images is not None
    condition = replace(family.condition(batch.text, batch), joined_images=batch.joined_images.text)
    output = family.predict(noised, condition)
    squared = (output[:, :4] - noised.noise).square().flatten(1).mean(1)
    assert torch.equal(objective.loss(output[:, :4], noised, torch.ones(2)).per_sample, squared)
    assert (loss.per_sample > squared).all()  # the variational term is added
    assert torch.equal(level, noised.level)
    lonely = replace(batch, joined_images=None)
    assert not torch.equal(trainer.train_step.loss(lonely, 0)[0].per_sample, loss.per_sample)


@contextmanager
def saved_bytes() -> Iterator[list[int]]:
    """Within, the bytes that autograd keeps of activations, each storage once."""
    seen: dict[int, Any] = {}
    total = [0]

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen and not isinstance(tensor, torch.nn.Parameter):
            seen[storage.data_ptr()] = storage
            total[0] += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield total


def test_gradient_checkpointing_saves_memory_except_exempt_pairs() -> None:
    kept, gradients = {}, {}
    for name, settings in {
        "none": None,
        "one exempt": RecomputeSettings(enabled=True, skip_first=1),
        "all": RecomputeSettings(enabled=True),
    }.items():
        family = Family.tiny(seed=1)
        blocks = list(family.blocks())
        done = recompute_blocks(blocks, settings) if settings else 0
        assert done == {"none": 0, "one exempt": 1, "all": 2}[name]
        batch = joint(family)
        trainer = trainer_over(family, [step_batches([batch], 0)], run={"device": "cpu"})
        with saved_bytes() as total:
            loss = trainer.train_step.loss(batch, 0)[0].total
        kept[name] = total[0]
        loss.backward()
        gradients[name] = [p.grad for p in family.parts()["denoiser"].parameters() if p.grad is not None]
    assert kept["all"] < kept["one exempt"] < kept["none"]
    pair = (kept["none"] - kept["all"]) / 2
    assert kept["one exempt"] - kept["all"] == pytest.approx(pair, rel=0.1)
    assert kept["all"] < 0.4 * kept["none"]
    for name in ("one exempt", "all"):
        assert all(torch.equal(a, b) for a, b in zip(gradients[name], gradients["none"], strict=True))


@pytest.mark.slow
def test_two_clips_are_overfitted(family: Family) -> None:
    clips, text = noise(2, 4, 2, 4, 4), text_of(family, "a red ball", "a blue cat")
    assert text.mask is not None
    many = TextEmbedding(text.states.repeat(4, 1, 1), text.mask.repeat(4, 1))
    steps = [step_batches([batch_of(clips.repeat(4, 1, 1, 1, 1), many)], number) for number in range(80)]
    trainer: Any = trainer_over(Family.tiny(seed=1), steps, optim={"lr": 3e-3}, run={"device": "cpu"})
    trainer.run()
    losses = [report.loss for report in trainer.callbacks[0].seen]
    start, end = sum(losses[:3]) / 3, sum(losses[-10:]) / 10
    assert end < start / 3, (start, end)


@pytest.mark.parametrize("changes", [{"min_snr_gamma": 5.0}, {"noise_offset": 0.1}, {"loss": "huber"}])
def test_other_objectives_train(family: Family, changes: dict[str, Any]) -> None:
    batch = joint(family)
    trainer: Any = trainer_over(
        Family.tiny(seed=1), [step_batches([batch], 0)], objective=changes, run={"device": "cpu"}, optim={"lr": 1e-3}
    )
    before = trainer.model.family.parts()["denoiser"].proj_out.weight.detach().clone()
    trainer.run()
    assert trainer.callbacks[0].seen[0].applied
    assert not torch.equal(trainer.model.family.parts()["denoiser"].proj_out.weight, before)
