"""The objective of models on straight paths: which levels of noise are trained, how they are shifted and weighed."""

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
"""The densities that each parameter belongs to."""


class FlowSettings(Section):
    """Of models on straight paths, x = (1 − σ) x_0 + σ ε: sd3, flux and their kin. σ = 1 is noise; every setting speaks
    of σ, also where another trainer counts the other way, see `docs/guides/flow.md`."""

    density: Annotated[Density, ALLOW] = "logit-normal"
    """How σ is drawn before it is shifted. `logit-normal`: the sigmoid of a normal number (`mean`, `std`), most in the
    middle (Esser et al. 2024, arXiv:2403.03206). `mode`: as much there, by `mode_scale`, and more at both ends;
    `heavy-tail` is OneTrainer's name for it. `uniform`: all alike. `sigmoid`: the sigmoid of `sigmoid_scale` times a
    normal number. `beta`: a beta distribution. `log-snr`: ln SNR = 2 ln((1 − σ)/σ) is normal (`mean`, `std`)."""

    mean: Annotated[float, ALLOW] = 0.0
    """Of `logit-normal` and `log-snr`: the mean of the normal number. Of `logit-normal` more is more noise (diffusers'
    scripts count the other way: write their `logit_mean` with the other sign); of `log-snr` more is less noise."""

    std: Annotated[PositiveFloat, ALLOW] = 1.0
    """Of `logit-normal` and `log-snr`: the deviation of the normal number."""

    mode_scale: Annotated[float, Field(ge=-1.0, le=1.75), ALLOW] = 1.29
    """Of `mode` and `heavy-tail`: 0 is uniform, above 0 prefers the middle and keeps the ends, below 0 the ends."""

    sigmoid_scale: Annotated[PositiveFloat, ALLOW] = 1.0
    """Of `sigmoid`: what the normal number is multiplied by; less keeps to the middle."""

    beta: Annotated[tuple[Annotated[float, Field(ge=0.5)], Annotated[float, Field(ge=0.5)]], ALLOW] = (2.0, 2.0)
    """Of `beta`: its two exponents, α for σ and β for 1 − σ. (1, 1) is uniform, a larger first one is more noise."""

    grid: Annotated[Literal["table", "continuous"], ALLOW] = "table"
    """`table` takes the nearest level above on the scheduler's table of 1000, as diffusers' scripts; `continuous` takes
    σ as it is drawn."""

    shift: Annotated[Literal["auto", "table", "resolution"] | PositiveFloat, ALLOW] = "auto"
    """Moves σ towards noise, σ' = s σ/(1 + (s − 1) σ), because more pixels need more noise. A number is s. `resolution`
    works s out of this batch's tokens as the family does (s = e^μ). `table` is what the scheduler's table has, as
    diffusers' scripts look it up: a fixed s, and none where the model is shifted by resolution. `auto` is `resolution`
    where the model's scheduler asks for it, otherwise `table`."""

    sigmas: Annotated[tuple[Share, Share], ALLOW] = (0.0, 1.0)
    """The lowest and the highest σ that is trained, after shifting; the density is squeezed in between."""

    preconditioned: Annotated[bool, ALLOW] = False
    """Measures the error of the clean latents x_t − σ v instead of that of v, as diffusers' SD3 script does by default.
    With `loss=mse` that is a weight of σ²; with `weighting=sigma-sqrt` the plain loss again."""

    def contradictions(self) -> Iterator[str]:
        low, high = self.sigmas
        if low >= high:
            yield f"objective.flow.sigmas must be two numbers with 0 ≤ first < second ≤ 1, got {low:g}, {high:g}"
        for name, densities in _PARAMETERS.items():
            default: Any = type(self).model_fields[name].default
            if getattr(self, name) != default and self.density not in densities:
                yield (
                    f"objective.flow.{name} is of density {' and '.join(densities)}, and objective.flow.density is "
                    f"{self.density}; leave it out"
                )
