"""The training loop of diffusers' `train_text_to_image.py` over the same batches, as the baseline of a comparison:
float32 weights under autocast, images and captions encoded in the step, torch's AdamW, diffusers' EMA, torch's gradient
clipping, and the loss read back at each step.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from mezzotint.data.buckets import buckets
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.base import with_values
from mezzotint.settings.families.base import family_spec, specs
from mezzotint.settings.optimizers.adamw import AdamW
from mezzotint.settings.recipe import Recipe
from mezzotint.stages import Batch, StepBatches
from mezzotint.tasks import assemble, holding
from mezzotint.tasks.assemble import Caches
from mezzotint.tasks.bench.measuring import Feed, Measured, Step, counts, length, peak_memory, reset_peak
from mezzotint.tasks.resolving import resolve
from mezzotint.training import lr
from mezzotint.training.precision.policy import DTYPES, cast

NAME = "stock"


def as_stock(recipe: Recipe, runtime: Runtime) -> Recipe:
    """The recipe without features that the script lacks. Raises RecipeError E1860 for one that it cannot train."""
    adamw = isinstance(recipe.optim.optimizer, AdamW) and not recipe.optim.part_optimizer
    names = " or ".join(spec.name for spec in specs() if spec.is_stock)
    for fits, limit in (
        (family_spec(recipe.model.family).is_stock, f"only trains model.family={names}"),
        (recipe.model.train == ("denoiser",) and not recipe.model.has_adapter, "only trains the denoiser"),
        (
            recipe.objective.loss == "mse" and recipe.model.prediction in (None, "epsilon"),
            "only has the mse of epsilon",
        ),
        (adamw, "only has AdamW"),
        (runtime.world_size == 1, "supports only one process here"),
    ):
        if not fits:
            raise RecipeError(
                f"mezzotint bench --against stock: the loop of train_text_to_image.py {limit}; leave --against out",
                code="E1860",
            )
    values: dict[str, Any] = {"data.cache.latents": False, "data.cache.text": False, "run.frozen_dtype": "same"}
    return with_values(recipe, values | {"run.compile": False, "run.micro_batch": None})


def measure(recipe: Recipe, runtime: Runtime, num_steps: int | None) -> Measured:
    """Trains the first steps. recipe: from `as_stock`."""
    started = time.perf_counter()
    dataset = assemble.open_dataset(recipe, runtime)
    files = assemble.open_files(recipe)
    needed = assemble.needed_parts(recipe)
    family = assemble.family_class(recipe).load(files, needed, holding.forms_of_frozen(recipe, needed))
    loop = _Loop(family, recipe, runtime.device)
    resolved = resolve(recipe, length(recipe, dataset, num_steps))
    with assemble.open_trainer(resolved, runtime, dataset, Caches(), None) as loading:  # type: ignore[arg-type]
        feed = Feed(loading.batches, dataset.timeline, buckets.table(recipe.data))
        reset_peak(runtime.device)
        setup = time.perf_counter() - started
        steps = tuple(_steps(feed, loop, resolved.steps))
        memory = peak_memory(runtime.device)
    return Measured(
        name=NAME, recipe=recipe, steps=steps, timeline=dataset.timeline, setup_seconds=setup, cache_seconds=0.0,
        memory=memory, images=len(dataset.rows),
    )  # fmt: skip


def _steps(feed: Feed, loop: _Loop, count: int) -> Iterator[Step]:
    batches = iter(feed)
    mark = time.monotonic()
    for _ in range(count):
        step = next(batches)
        cpu = feed.marks[-1]
        loss = loop.step(step, count)
        distinct, sizes = counts(feed.timeline, feed.table, step.step)
        now = time.monotonic()
        yield Step(now - mark, step.wait_seconds, time.process_time() - cpu, step.count, distinct, sizes, loss, loss)
        mark = now


class _Loop:
    """Model, optimizer and EMA as in the script."""

    def __init__(self, family: ModelFamily, recipe: Recipe, device: torch.device) -> None:
        from diffusers import DDPMScheduler
        from diffusers.training_utils import EMAModel

        parts: Any = family.parts()
        self.unet, self.vae, self.text = (parts[name] for name in ("denoiser", "vae", "text_encoder"))
        self.family, self.recipe, self.device = family, recipe, device
        self.dtype = DTYPES[recipe.run.precision]
        self.unet.requires_grad_(True).train().to(device)
        for frozen in (self.vae, self.text):
            cast(frozen.requires_grad_(False).eval(), self.dtype)
            frozen.to(device)
        if recipe.run.gradient_checkpointing.enabled:
            self.unet.enable_gradient_checkpointing()
        optim, adamw = recipe.optim, recipe.optim.optimizer
        assert isinstance(adamw, AdamW)
        self.optimizer = torch.optim.AdamW(
            self.unet.parameters(), lr=optim.lr, betas=adamw.betas, weight_decay=adamw.weight_decay, eps=adamw.eps
        )
        betas = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
        self.noise_scheduler = DDPMScheduler(num_train_timesteps=1000, **betas)
        has_ema = optim.ema.rule != "none"
        self.ema = EMAModel(self.unet.parameters(), model_cls=type(self.unet)) if has_ema else None
        self.scaler = torch.amp.GradScaler(device.type, enabled=recipe.run.precision == "fp16")
        torch.manual_seed(recipe.run.seed)

    def step(self, batches: StepBatches, last: int) -> float:
        """One update. last: the run's last step."""
        train_loss, num_micro_batches = 0.0, max(1, sum(size > 0 for size in batches.sizes))
        for batch in batches.batches:
            if not batch.size:
                continue
            loss = self._loss(batch)
            train_loss += loss.detach().item() / num_micro_batches
            self.scaler.scale(loss / num_micro_batches).backward()
        self.scaler.unscale_(self.optimizer)
        if self.recipe.optim.clip.norm is not None:
            nn.utils.clip_grad_norm_(self.unet.parameters(), self.recipe.optim.clip.norm)
        factor = lr.factor(self.recipe.optim.schedule, batches.step, last)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.optim.lr * factor
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.ema is not None:
            self.ema.step(self.unet.parameters())
        return train_loss

    def _loss(self, batch: Batch) -> torch.Tensor:
        assert batch.pixels is not None
        with torch.no_grad():
            latents = self.vae.encode(batch.pixels.to(self.device, self.dtype)).latent_dist.sample()
            latents = latents * self.vae.config.scaling_factor
            states = self.family.encode_text(batch.captions).states
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, 1000, (len(latents),), device=self.device).long()
        noisy = self.noise_scheduler.add_noise(latents, noise, timesteps)
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            predicted = self.unet(noisy, timesteps, states, return_dict=False)[0]
        return functional.mse_loss(predicted.float(), noise.float(), reduction="mean")
