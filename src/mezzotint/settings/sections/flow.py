"""The objective of flow-matching models: how noise levels are sampled, shifted and weighted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveFloat

from mezzotint.settings.base import ALLOW, Section, Share

Density = Literal["logit-normal", "mode", "heavy-tail", "uniform", "sigmoid", "beta", "log-snr"]
_PARAMETERS: dict[str, tuple[str, ...]] = {
    "mean": ("logit-normal", "log-snr"),
    "std": ("logit-normal", "log-snr"),
    "mode_scale": ("mode", "heavy-tail"),
    "sigmoid_scale": ("sigmoid",),
    "beta": ("beta",),
}
"""The densities that use each parameter."""


class FlowSettings(Section):
    """For flow-matching models (rectified flow), x = (1 − σ) x_0 + σ ε: sd3, flux and others. σ = 1 is noise; every
    setting uses σ, also where another trainer counts the other way, see `docs/guides/flow.md`."""

    density: Annotated[Density, ALLOW] = "logit-normal"
    """The distribution of σ before the shift. `logit-normal`: the sigmoid of a normal number (`mean`, `std`), most in
    the middle (Esser et al. 2024, arXiv:2403.03206). `mode`: most in the middle, by `mode_scale`, with more at both
    ends than `logit-normal`; `heavy-tail` is OneTrainer's name for it. `uniform`. `sigmoid`: the sigmoid of
    `sigmoid_scale` times a normal number. `beta`: a beta distribution. `log-snr`: ln SNR = 2 ln((1 − σ)/σ) is normal
    (`mean`, `std`)."""

    mean: Annotated[float, ALLOW] = 0.0
    """For `logit-normal` and `log-snr`: the mean of the normal number. For `logit-normal` a larger mean is more noise
    (diffusers' scripts count the other way: write their `logit_mean` with the other sign), for `log-snr` less noise."""

    std: Annotated[PositiveFloat, ALLOW] = 1.0
    """For `logit-normal` and `log-snr`: the standard deviation of the normal number."""

    mode_scale: Annotated[float, Field(ge=-1.0, le=1.75), ALLOW] = 1.29
    """For `mode` and `heavy-tail`: 0 is uniform, above 0 prefers the middle and keeps the ends, below 0 prefers the
    ends."""

    sigmoid_scale: Annotated[PositiveFloat, ALLOW] = 1.0
    """For `sigmoid`: the factor of the normal number; smaller values stay closer to the middle."""

    beta: Annotated[tuple[Annotated[float, Field(ge=0.5)], Annotated[float, Field(ge=0.5)]], ALLOW] = (2.0, 2.0)
    """For `beta`: its two exponents, α for σ and β for 1 − σ. (1, 1) is uniform, a larger first one is more noise."""

    grid: Annotated[Literal["table", "continuous"], ALLOW] = "table"
    """`table` rounds σ up to the nearest level in the scheduler's table of 1000, as diffusers' scripts do; `continuous`
    uses σ as drawn."""

    shift: Annotated[Literal["auto", "table", "resolution"] | PositiveFloat, ALLOW] = "auto"
    """Shifts σ towards noise, σ' = s σ/(1 + (s − 1) σ), because more pixels need more noise. A number is s.
    `resolution` computes s from the number of tokens of the batch as the family does (s = e^μ). `table` uses the
    scheduler's table, as diffusers' scripts do: a fixed s, and none if the model is shifted by resolution. `auto` is
    `resolution` if the model's scheduler asks for it, otherwise `table`."""

    sigmas: Annotated[tuple[Share, Share], ALLOW] = (0.0, 1.0)
    """The lowest and the highest trained σ, after the shift; the density is rescaled to this range."""

    preconditioned: Annotated[bool, ALLOW] = False
    """Measures the error of the clean latents x_t − σ v instead of that of v, as diffusers' SD3 script does by default.
    With `loss=mse` this is a weight of σ²; with `weighting=sigma-sqrt` it is the plain loss again."""

    def contradictions(self) -> Iterator[str]:
        low, high = self.sigmas
        if low >= high:
            yield f"objective.flow.sigmas must be two numbers with 0 ≤ first < second ≤ 1, got {low:g}, {high:g}"
        for name, densities in _PARAMETERS.items():
            default: Any = type(self).model_fields[name].default
            if getattr(self, name) != default and self.density not in densities:
                yield (
                    f"objective.flow.{name} is for the density {' and '.join(densities)}, and objective.flow.density "
                    f"is {self.density}; leave it out"
                )
