"""The training objective: noise, timesteps, loss and its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER, Section
from mezzotint.settings.sections.flow import FlowSettings
from mezzotint.settings.sections.preserve import PreserveSettings

OF_THE_LOSS = ("sigma-sqrt", "cosmap", "bell", "half-bell", "table")
"""Weightings of flow-matching models that multiply the loss whatever its target."""
_PSEUDO_HUBER = ("pseudo-huber", "smooth-l1")
_OF_ANY_LOSS = ("debiased", *OF_THE_LOSS)
"""Weightings that multiply the loss of any kind."""


class TimestepBiasSettings(Section):
    """Timesteps that are drawn more often than others. The loss is not reweighted for it."""

    strategy: Annotated[Literal["none", "earlier", "later", "range"], ALLOW] = "none"
    """`none` draws all timesteps equally often. `earlier` prefers the first timesteps, with little noise and fine
    detail; `later` the last ones, with composition; `range` those from `objective.timestep_bias.begin` to `end`."""

    multiplier: Annotated[PositiveFloat, ALLOW] = 1.0
    """How many times as often each preferred timestep is drawn. Below 1 they are drawn less often."""

    begin: Annotated[int, Field(ge=0, lt=1000), ALLOW] = 0
    """The first preferred timestep of `range`."""

    end: Annotated[int, Field(gt=0, le=1000), ALLOW] = 1000
    """The end of `range`, exclusive."""

    portion: Annotated[float, Field(ge=0.0, le=1.0), ALLOW] = 0.25
    """The fraction of the timesteps that `earlier` and `later` prefer."""

    def contradictions(self) -> Iterator[str]:
        if self.begin >= self.end:
            yield f"objective.timestep_bias.begin must be below end, got {self.begin} and {self.end}"


class ObjectiveSettings(Section):
    """The mathematics of a training step."""

    loss: Annotated[Literal["mse", "l1", "huber", "pseudo-huber", "smooth-l1", "mse-huber", "huber-mse"], ALLOW] = "mse"
    """`mse` is the squared error e² of the prediction, `l1` the absolute one; `huber` is quadratic up to δ =
    `objective.huber_delta` and linear beyond, which is robust to outliers. `pseudo-huber`, 2c (√(e² + c²) − c), and
    `smooth-l1`, 2 (√(e² + c²) − c), are smooth everywhere; c is δ, or varies by `objective.huber_schedule` (sd-scripts'
    huber and smooth_l1). `mse-huber` moves with the timestep from Huber at 0 to MSE at the last one, `huber-mse` the
    other way (EveryDream2's names)."""

    huber_delta: Annotated[PositiveFloat, ALLOW] = 0.1
    """δ, where the Huber losses change from quadratic to linear, in units of the prediction."""

    huber_schedule: Annotated[Literal["constant", "exponential", "snr"], ALLOW] = "constant"
    """How c of `pseudo-huber` and `smooth-l1` depends on the noise level: `constant`, δ; `exponential`, δ^(t/T) with T
    timesteps; `snr`, (1 − δ)/(1 + σ)² + δ with σ = √((1 − ᾱ)/ᾱ), not for flow-matching models. The last two fall from 1
    without noise to δ (formulas of sd-scripts)."""

    huber_scale: Annotated[PositiveFloat, ALLOW] = 1.0
    """A factor of c."""

    weighting: Annotated[
        Literal[
            "prediction", "unit", "epsilon", "v", "edm", "debiased", "sigma-sqrt", "cosmap", "bell", "half-bell",
            "table",
        ],
        ALLOW,
    ] = "prediction"  # fmt: skip
    """The loss weight of a noise level. `prediction`: equal weights on the error of the network's prediction. `unit`,
    `epsilon`, `v` and `edm` weight the error of the clean latents by σ, as MindONE's and Stability's classes of that
    name: `unit` 1, `epsilon` σ⁻², `v` σ⁻² + 1, `edm` σ⁻² + σ_d⁻². With `mse` each of the last three equals `prediction`
    for a network of that kind. They need the loss `mse` or `l1`. `debiased` weights the loss by 1/√SNR for epsilon and
    1/(SNR + 1) for v, SNR at most 1000 (debiased estimation, Yu et al. 2023, arXiv:2310.08442, as in sd-scripts); not
    with `objective.min_snr_gamma`. For flow-matching models `sigma-sqrt`, σ⁻² times the plain loss, and `cosmap`, 2/(π
    (1 − 2σ + 2σ²)), by diffusers' names; `bell`, c (exp(−2 (σ − ½)²) − exp(−½)) with mean 1, which is 0 at both ends,
    and `half-bell`, which stays at its maximum below ½ (ai-toolkit's linear_timesteps and linear_timesteps2); `table`,
    those of `objective.weight_table`."""

    weight_table: Annotated[Literal["flex.1-alpha"] | tuple[NonNegativeFloat, ...] | None, ALLOW] = None
    """The weights of `weighting=table`: N numbers for σ = 1/N, 2/N, …, 1, from little noise to pure noise; the nearest
    one applies. Or the name of a table: `flex.1-alpha`, 1000 weights with mean 1 that ai-toolkit's author measured with
    Flex.1-alpha (its `timestep_type: weighted`): 0.45 at little noise, 1.52 at σ = 0.88, 0.91 at pure noise."""

    sigma_data: Annotated[PositiveFloat, ALLOW] = 0.5
    """σ_d of `edm`, for the prediction and the weighting: the assumed standard deviation of clean latents (Karras et
    al. 2022, arXiv:2206.00364)."""

    noise_levels: Annotated[Literal["timesteps", "log-normal"], ALLOW] = "timesteps"
    """Where noise levels come from: the schedule's `timesteps`, or `log-normal`, any σ with a normally distributed
    logarithm (`objective.log_normal`), as in EDM. A network with timestep input then gets the nearest timestep."""

    log_normal: Annotated[tuple[float, PositiveFloat], ALLOW] = (-1.2, 1.2)
    """With `noise_levels=log-normal`: mean and standard deviation of ln σ. The default is EDM's."""

    time_input: Annotated[Literal["auto", "timestep", "log-sigma"], NEVER] = "auto"
    """How the network gets the noise level: as the `timestep`, or as ¼ ln σ (`log-sigma`). `auto` is `log-sigma` for
    the predictions `edm` and `v-edm`, otherwise `timestep`."""

    posterior: Annotated[Literal["sample", "mean"], ALLOW] = "sample"
    """How an image's latents are taken from the autoencoder's posterior: a `sample`, drawn at each visit, or its
    `mean`, as in diffusers' scripts for FLUX.2 Klein and Z-Image. The two differ by less than the lowest noise
    level."""

    min_snr_gamma: Annotated[PositiveFloat | None, ALLOW] = None
    """Clamp the signal-to-noise ratio at γ when weighting the loss; 5 is usual (Hang et al. 2023, arXiv:2303.09556).
    None weights all timesteps equally. With v-prediction in the form `prediction` the noisiest timesteps, which decide
    the composition, get a weight of about 0.005: a model trained so from scratch did not learn positions."""

    min_snr_form: Annotated[Literal["prediction", "x0", "ratio"], ALLOW] = "prediction"
    """How γ weights the loss. `prediction`: min(SNR, γ)/SNR for epsilon and min(SNR, γ)/(SNR + 1) for v, as in
    diffusers. `x0`: the weight of the prediction in x₀ space is clamped, min(w, γ), as in MindONE. `ratio`: min(SNR,
    γ)/SNR for both, as in EveryDream2."""

    noise_offset: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Adds this much noise that is constant over each channel of an image, so that the model learns very dark and very
    bright images. 0.02–0.1 is usual."""

    noise_offset_per: Annotated[Literal["channel", "sample"], ALLOW] = "channel"
    """Draw offset noise for each `channel` of an image, or once for the whole `sample`, as MindONE does."""

    noise_offset_random_strength: Annotated[bool, ALLOW] = False
    """Multiply `objective.noise_offset` by a number that is drawn evenly from 0 to 1 at each step, the same for all its
    samples, as sd-scripts for each batch."""

    noise_offset_adaptive_scale: Annotated[float, ALLOW] = 0.0
    """Adds this much times the absolute mean of each channel of the latents to the strength of its offset noise, which
    stays at least 0: more offset for very dark and very bright images, less with a negative number (sd-scripts'
    adaptive_noise_scale)."""

    pyramid_discount: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], ALLOW] = 0.0
    """Pyramid noise (Whitaker 2023): noise of smaller and smaller sizes, upscaled, is added with this factor to the
    power of the level, and the sum normalised to unit deviation. 0 is plain noise; above 0.4 only for short runs, under
    2 000 steps."""

    embedding_perturbation: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Adds normal noise with this deviation over √D to the text embedding, D its width; makes the model less sensitive
    to wording. 0 adds none."""

    input_perturbation: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Adds this much more noise to the denoiser's input, while the target stays the same (Ning et al. 2023,
    arXiv:2301.11706); 0.1 is usual. It makes sampling tolerate its own errors."""

    input_perturbation_random_strength: Annotated[bool, ALLOW] = False
    """Multiply `objective.input_perturbation` by a number that is drawn evenly from 0 to 1 at each step, the same for
    all its samples, as sd-scripts for each batch."""

    zero_terminal_snr: Annotated[bool, NEVER] = False
    """Rescales the noise schedule so that the last timestep is pure noise (Lin et al. 2023, arXiv:2305.08891,
    algorithm 1). For v-prediction; with epsilon the last timestep teaches nothing and its Min-SNR weight is 0. The
    exported scheduler records it."""

    timesteps: Annotated[tuple[int, int], ALLOW] = (0, 1000)
    """Timesteps are drawn evenly from the first (inclusive) to the second (exclusive), out of the schedule's 1000. (0,
    1000) is all of them."""

    timestep_bias: TimestepBiasSettings = TimestepBiasSettings()
    """Timesteps that are drawn more often. `objective.timesteps` limits which are drawn at all."""

    preserve: PreserveSettings = PreserveSettings()
    """Preservation of what the base model knows."""

    flow: FlowSettings = FlowSettings()
    """The objective of flow-matching models."""

    def contradictions(self) -> Iterator[str]:
        if self.loss not in _PSEUDO_HUBER and (self.huber_schedule, self.huber_scale) != ("constant", 1.0):
            name = "huber_schedule" if self.huber_schedule != "constant" else "huber_scale"
            yield (
                f"objective.{name} is for objective.loss={' or '.join(_PSEUDO_HUBER)}, got {self.loss}; leave it out, "
                "or set one of these losses"
            )
        low, high = self.timesteps
        if not 0 <= low < high <= 1000:
            yield (f"objective.timesteps must be two numbers with 0 ≤ first < second ≤ 1000, got {low}, {high}")
        if self.weighting not in ("prediction", *_OF_ANY_LOSS) and self.loss not in ("mse", "l1"):
            yield (
                f"objective.weighting={self.weighting} needs objective.loss mse or l1, got {self.loss}; "
                "write objective.weighting=prediction"
            )
        if (self.weighting == "table") != bool(self.weight_table):
            yield (
                "objective.weighting=table needs objective.weight_table, a list of weights or flex.1-alpha"
                if self.weighting == "table"
                else f"objective.weight_table is for objective.weighting=table, got {self.weighting}; leave it out"
            )
        if self.weighting in _OF_ANY_LOSS and self.min_snr_gamma is not None:
            yield (
                f"objective.min_snr_gamma and objective.weighting={self.weighting} both weight noise levels; leave "
                "one of them out"
            )
        elif self.weighting != "prediction" and self.min_snr_gamma is not None and self.min_snr_form != "x0":
            yield (
                f"objective.min_snr_gamma clamps the weight of objective.weighting={self.weighting} only in the form "
                "x0; write objective.min_snr_form=x0, or objective.weighting=prediction"
            )
        if self.noise_levels == "log-normal" and (self.timesteps != (0, 1000) or self.timestep_bias.strategy != "none"):
            yield (
                "objective.timesteps and objective.timestep_bias select timesteps, and "
                "objective.noise_levels=log-normal uses none; leave them out, or set objective.noise_levels=timesteps"
            )
