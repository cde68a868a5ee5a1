"""Advice on settings, with the reason if one is known: printed by `mezzotint explain`, and by `mezzotint check` when a
recipe departs from it. Never an error. Taken from EveryDream2's documents for Stable Diffusion and MindONE's for
SDXL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from mezzotint.settings.counting import format_bytes
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.tokens import PART

ADVICE: Mapping[str, str] = {
    "data.resolution": "SD 1.5 can be trained at 576, 640 and 704 as well as 512, especially with hundreds of images; "
    "train a 768-pixel model around 768. Higher resolutions need more memory and a lower rate.",
    "optim.lr": "1e-6 in general for SD 1.5 at 512, 2e-6 to 5e-6 with batches of 6 to 8; about half at 768 "
    "(1e-6 to 2.5e-6); 2e-7 for SD 2.1 at 768. With a cosine start 25 to 50 % higher. An adapter needs ten to twenty "
    "times as much.",
    "optim.schedule.kind": "A cosine may start 25 to 50 % higher than a constant rate.",
    "optim.schedule.decay_steps": "Leave it unset: after a decay that ends before the run, the rate stays at the "
    "floor, or a cosine rises again; a decay over three times as long as the run hardly lowers the rate.",
    "optim.lr_batch_power": "It raises the rate for every batch above 1, so start low, at 2e-6, and check the "
    "printed rate.",
    "optim.accumulation": "With batches of 6 to 8, more than 1 lowers quality.",
    "optim.clip.norm": "Fine-tuning seldom needs it: fp16 with a loss scale keeps gradients in range.",
    "optim.optimizer.kind": "prodigy estimates the learning rate, and optim.lr is a factor of it: leave it at 1.",
    "optim.optimizer.eps": "A larger value helps against exploding gradients.",
    "data.captions.dropout": "0.04 in general, 0.10 for large models, 0.15 to force a style; with more, the style "
    "appears everywhere.",
    "data.flip": "Not for faces, asymmetric outfits, or captions with left and right; for clips, not if captions "
    "mention the direction of a movement or turn.",
    "data.batch_size": "With images batched together by name, their number of each shape should be a multiple of it.",
    "run.gradient_checkpointing.enabled": "Not below 640 on a GPU of 24 GB; needed above 768 there.",
    "objective.noise_offset": "0.05 to 0.10 works well: 0.10 for short runs, 0.02 to 0.03 beyond 50,000 "
    "steps, where more can diverge.",
    "objective.pyramid_discount": "Above 0.40 only for runs under 2,000 steps.",
    "objective.min_snr_gamma": "5, or 1 or 20; for v-prediction not in the form prediction, which gives the noisiest "
    "timesteps a weight of about 0.005.",
    "objective.zero_terminal_snr": "For v-prediction models; set sample.guidance_rescale=0.7.",
    "optim.ema.decay": "0.9999 on the GPU with an interval of 1; 0.999 to 0.9999 is sensible. With an "
    "interval of 50, 0.99 or less.",
    "optim.ema.interval": "1 on the GPU; on the CPU a larger one makes updates cheaper, and needs a lower decay.",
    "optim.ema.device": "cpu on GPUs of 16 GB and less, same from 40 GB on.",
    "optim.ema.strength": "0.01 to 0.15.",
    "run.memory_limit": "59GB on a device of 64 GB.",
    "run.vae_dtype": "fp32 for SDXL, whose original VAE overflows in fp16.",
    "run.weight_dtype": "fp32: fp16 weights can make SDXL training unstable. If you need them, the repaired VAE "
    "(fp16-fix) in model.vae helps a little, and so does a cache encoded in fp32.",
    "objective.timestep_bias.strategy": "earlier for fine detail, later for composition.",
    "run.seed": "A fixed one to compare settings; -1 when a model is often stopped and continued in new runs.",
}
"""Advice by path."""

BOUNDARY = 25e9
"""Bytes; a GPU of 24 GB has a little less."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule checks. steps: of the run, None if unknown. memory: bytes of the device, None if unknown or not a
    GPU. prediction: of the model, None if unknown."""

    recipe: Recipe
    steps: int | None = None
    memory: int | None = None
    prediction: str | None = None

    @property
    def rate(self) -> float:
        """The highest peak rate."""
        o = self.recipe.optim
        return o.lr * float((self.recipe.data.batch_size * o.accumulation) ** o.lr_batch_power)

    @property
    def has_rate(self) -> bool:
        """Whether the advised rates apply: to a denoiser's own weights, trained by an optimizer with AdamW's usual
        rates."""
        model = self.recipe.model
        return self.recipe.optim.optimizer.takes_usual_rates and not model.has_adapter and model.train != (PART,)


def notes(
    recipe: Recipe, *, steps: int | None = None, memory: int | None = None, prediction: str | None = None
) -> list[str]:
    """Where a recipe departs from the advice, a sentence each. Random weights and other families get none. steps,
    memory, prediction: as in `Seen`; a prediction that the recipe names has precedence."""
    if recipe.model.weights == "random":
        return []
    names, optimizer = family_spec(recipe.model.family).advice, recipe.optim.optimizer
    seen = Seen(recipe, steps, memory, recipe.model.prediction or prediction)
    departures = [f"{path} {text}; advised: {ADVICE[path]}" for name in names for path, text in _RULES[name](seen)]
    of_optimizer = optimizer.advice(recipe.data.batch_size) if "rates" in names else ()
    return departures + [f"optim.optimizer.kind {text}; advised: {optimizer.advised}" for text in of_optimizer]


def suggest_less_memory(recipe: Recipe) -> str:
    """What to do when a step does not fit into memory; only ways that the recipe does not use yet."""
    run = recipe.run
    ways = []
    if run.micro_batch != 1 and recipe.data.largest_batch > 1:
        value = f" below {run.micro_batch}" if run.micro_batch is not None else "=1"
        ways.append(f"{'lower' if run.micro_batch else 'set'} run.micro_batch{value} (the mathematics stays the same)")
    if not run.gradient_checkpointing.enabled:
        ways.append("set run.gradient_checkpointing.enabled=true")
    ways.append(f"set data.resolution below {max(recipe.data.resolution)}")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}" if len(ways) > 1 else ways[0]


_Notes = Iterator[tuple[str, str]]


def _check_rates(seen: Seen) -> _Notes:
    optim, data = seen.recipe.optim, seen.recipe.data
    schedule, steps = optim.schedule, seen.steps
    most = 5e-6 if max(data.resolution) < 768 else 2.5e-6
    if seen.has_rate and data.batch_size * optim.accumulation <= 8 and seen.rate > 1.5 * most:
        yield "optim.lr", f"is effectively {seen.rate:.3g} with batches of {data.batch_size} at {max(data.resolution)}"
    decay = schedule.decay_steps
    if decay is not None and steps is not None and schedule.kind not in ("constant", "inverse-sqrt", "piecewise"):
        after = ""
        if decay < steps:
            after = "rises again after it" if schedule.after_decay == "cosine" else "stays at its floor after it"
        elif decay > 3 * steps:
            after = "hardly falls"
        if after:
            yield "optim.schedule.decay_steps", f"is {decay:,} and the run has {steps:,} steps: the rate {after}"
    if optim.lr_batch_power and optim.lr > 5e-6 and seen.has_rate:
        yield "optim.lr_batch_power", f"multiplies a rate of {optim.lr:g}"
    if optim.accumulation > 1 and data.batch_size >= 6:
        yield "optim.accumulation", f"is {optim.accumulation} with batches of {data.batch_size}"


def _check_images(seen: Seen) -> _Notes:
    data, memory, is_on = seen.recipe.data, seen.memory, seen.recipe.run.gradient_checkpointing.enabled
    if data.captions.dropout > 0.15:
        yield "data.captions.dropout", f"is {data.captions.dropout:g}"
    yield from _check_flips(seen)
    if memory is not None and is_on and max(data.resolution) < 640 and memory > 0.8 * BOUNDARY:
        yield "run.gradient_checkpointing.enabled", f"is true at {max(data.resolution)} on {format_bytes(memory)}"
    if memory is not None and not is_on and max(data.resolution) > 768 and memory <= 1.1 * BOUNDARY:
        yield "run.gradient_checkpointing.enabled", f"is false at {max(data.resolution)} on {format_bytes(memory)}"


def _check_flips(seen: Seen) -> _Notes:
    if seen.recipe.data.flip > 0:
        yield "data.flip", f"is {seen.recipe.data.flip:g}"


def _check_noise(seen: Seen) -> _Notes:
    objective, steps = seen.recipe.objective, seen.steps
    offset, discount, gamma = objective.noise_offset, objective.pyramid_discount, objective.min_snr_gamma
    if offset > 0.1:
        yield "objective.noise_offset", f"is {offset:g}"
    elif offset > 0.03 and steps is not None and steps > 50_000:
        yield "objective.noise_offset", f"is {offset:g} over {steps:,} steps"
    if discount > 0.4 and (steps is None or steps >= 2000):
        yield "objective.pyramid_discount", f"is {discount:g}"
    if gamma is not None and gamma not in (1.0, 5.0, 20.0):
        yield "objective.min_snr_gamma", f"is {gamma:g}"
    elif gamma is not None and objective.min_snr_form == "prediction" and seen.prediction == "v":
        text = f"is {gamma:g}, the model predicts v, and objective.min_snr_form is prediction"
        yield "objective.min_snr_gamma", text
    if objective.zero_terminal_snr and seen.recipe.model.prediction == "epsilon":
        yield "objective.zero_terminal_snr", "is true, and model.prediction is epsilon"
    elif objective.zero_terminal_snr and not seen.recipe.sample.guidance_rescale:
        yield "objective.zero_terminal_snr", "is true, and sample.guidance_rescale is 0"


def _check_averages(seen: Seen) -> _Notes:
    ema, memory = seen.recipe.optim.ema, seen.memory
    if ema.rule == "constant" and ema.strength is None:
        if ema.interval >= 50 and ema.decay > 0.99:
            yield "optim.ema.decay", f"is {ema.decay:g} with an interval of {ema.interval}"
        elif ema.interval == 1 and not 0.999 <= ema.decay <= 0.9999:
            yield "optim.ema.decay", f"is {ema.decay:g}"
    if ema.strength is not None and not 0.01 <= ema.strength <= 0.15:
        yield "optim.ema.strength", f"is {ema.strength:g}"
    if ema.rule == "none" or memory is None:
        return
    if ema.device == "same" and memory <= 17.5e9:
        yield "optim.ema.device", f"is same on {format_bytes(memory)}"
    if ema.device == "cpu" and memory >= 40e9:
        yield "optim.ema.device", f"is cpu on {format_bytes(memory)}"


def _check_gamma(seen: Seen) -> _Notes:
    gamma = seen.recipe.objective.min_snr_gamma
    if gamma is not None and gamma != 5.0:
        yield "objective.min_snr_gamma", f"is {gamma:g}"


def _check_half_precision(seen: Seen) -> _Notes:
    run = seen.recipe.run
    dtype = run.vae_dtype or run.frozen_dtype
    is_half = dtype == "fp16" or (run.precision == "fp16" and dtype == "same")
    if is_half and seen.recipe.model.vae is None:
        yield "run.vae_dtype", "is effectively fp16, and model.vae names no other VAE"
    if run.precision == "fp16" and run.weight_dtype == "same":
        yield "run.weight_dtype", "is same, and run.precision is fp16"


_RULES: Mapping[str, Callable[[Seen], _Notes]] = {
    "rates": _check_rates,
    "images": _check_images,
    "flips": _check_flips,
    "noise": _check_noise,
    "averages": _check_averages,
    "gamma": _check_gamma,
    "half-precision": _check_half_precision,
}
"""The rules by subject, as in a family's `SPEC.advice`."""
