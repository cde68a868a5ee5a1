"""What the model is taught: noise, timesteps, loss and its weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER, Section
from mezzotint.settings.sections.flow import FlowSettings

OF_THE_LOSS = ("sigma-sqrt", "cosmap")
"""Weightings of straight paths that multiply the loss whatever it measures."""


class TimestepBiasSettings(Section):
    """Which timesteps are drawn more often than others. A sample's loss is not weighted back."""

    strategy: Annotated[Literal["none", "earlier", "later", "range"], ALLOW] = "none"
    """`none` draws all alike. `earlier` prefers the first timesteps, those of little noise, and so fine detail; `later`
    the last ones, and so composition; `range` those from `objective.timestep_bias.begin` to `end`."""

    multiplier: Annotated[PositiveFloat, ALLOW] = 1.0
    """How many times as often the preferred timesteps are drawn, each of them. Below 1 they are drawn less often."""

    begin: Annotated[int, Field(ge=0, lt=1000), ALLOW] = 0
    """The first preferred timestep of `range`."""

    end: Annotated[int, Field(gt=0, le=1000), ALLOW] = 1000
    """Where `range` ends; this timestep itself is not preferred."""

    portion: Annotated[float, Field(ge=0.0, le=1.0), ALLOW] = 0.25
    """Which share of the timesteps `earlier` and `later` prefer."""

    def contradictions(self) -> Iterator[str]:
        if self.begin >= self.end:
            yield f"objective.timestep_bias.begin must lie below end, got {self.begin} and {self.end}"


class ObjectiveSettings(Section):
    """The mathematics of a training step."""

    loss: Annotated[Literal["mse", "l1", "huber", "mse-huber", "huber-mse"], ALLOW] = "mse"
    """`mse` is the squared error of the prediction, `l1` the plain one; `huber` is quadratic up to
    `objective.huber_delta` and linear beyond, which forgives outliers. `mse-huber` goes with the timestep from Huber at
    0 to MSE at the last one, `huber-mse` the other way (EveryDream2's names)."""

    huber_delta: Annotated[PositiveFloat, ALLOW] = 0.1
    """Where the Huber loss turns from quadratic to linear, in units of the prediction."""

    weighting: Annotated[Literal["prediction", "unit", "epsilon", "v", "edm", "sigma-sqrt", "cosmap"], ALLOW] = (
        "prediction"
    )
    """How much a level of noise counts. `prediction`: alike, in what the network predicts. The others give the error of
    the clean latents a weight of σ, as MindONE's and Stability's classes of that name: `unit` 1, `epsilon` σ⁻², `v` σ⁻²
    + 1, `edm` σ⁻² + σ_d⁻². With `mse` each of the last three is what `prediction` is for a network of that kind. Needs
    the loss `mse` or `l1`. Of models on straight paths also `sigma-sqrt`, σ⁻² on the loss as it is, and `cosmap`,
    2/(π (1 − 2σ + 2σ²)), by diffusers' names."""

    sigma_data: Annotated[PositiveFloat, ALLOW] = 0.5
    """σ_d of `edm`, of the prediction as of the weighting: the deviation that clean latents are taken to have (Karras
    et al. 2022, arXiv:2206.00364)."""

    noise_levels: Annotated[Literal["timesteps", "log-normal"], ALLOW] = "timesteps"
    """Where levels of noise come from: the schedule's `timesteps`, or any σ, drawn with a logarithm that is normal
    (`objective.log_normal`), as EDM does. A network that is told timesteps is then given the nearest one."""

    log_normal: Annotated[tuple[float, PositiveFloat], ALLOW] = (-1.2, 1.2)
    """With `levels=log-normal`: mean and deviation of ln σ. The default is EDM's."""

    time_input: Annotated[Literal["auto", "timestep", "log-sigma"], NEVER] = "auto"
    """What the network is told of the level of noise: the number of the `timestep`, or ¼ ln σ (`log-sigma`). `auto` is
    the latter for the predictions `edm` and `v-edm`."""

    posterior: Annotated[Literal["sample", "mean"], ALLOW] = "sample"
    """What of an autoencoder's answer is a picture's latents: a `sample`, drawn anew at each visit, or its `mean`, as
    diffusers' scripts for FLUX.2 Klein and Z-Image take. The two differ by less than noise of the lowest level."""

    min_snr_gamma: Annotated[PositiveFloat | None, ALLOW] = None
    """Clamp the signal-to-noise ratio at γ when weighting the loss; 5 is usual (Hang et al. 2023, arXiv:2303.09556).
    None weights all timesteps alike. With v-prediction in the form `prediction` the noisiest timesteps, where it is
    decided what goes where, weigh about 0.005: a model trained so from nothing did not learn positions."""

    min_snr_form: Annotated[Literal["prediction", "x0", "ratio"], ALLOW] = "prediction"
    """How γ weights the loss. `prediction`: min(SNR, γ)/SNR for epsilon and min(SNR, γ)/(SNR + 1) for v, as diffusers.
    `x0`: the weight of the prediction in x₀ space is clamped, min(w, γ), as MindONE. `ratio`: min(SNR, γ)/SNR for
    both, as EveryDream2."""

    noise_offset: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Adds this much noise that is constant over each channel of a picture, so that the model learns very dark and
    very bright ones. 0.02–0.1 is usual."""

    noise_offset_per: Annotated[Literal["channel", "sample"], ALLOW] = "channel"
    """Whether offset noise is drawn for each `channel` of a picture, or once for the whole `sample`, as MindONE
    does."""

    pyramid_discount: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], ALLOW] = 0.0
    """Pyramid noise (Whitaker 2023): noise of ever smaller sizes, enlarged, is added with this factor to the power of
    the level, and the sum brought back to unit deviation. 0 is plain noise; above 0.4 only for short runs, under 2 000
    steps."""

    embedding_perturbation: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Adds normal noise of this deviation over √D to the text embedding, D its width; makes the model less sensitive
    to wording. 0 adds none."""

    input_perturbation: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Adds this much more noise to what the denoiser sees, while the target stays as it was (Ning et al. 2023,
    arXiv:2301.11706); 0.1 is usual. It makes sampling forgive its own errors."""

    zero_terminal_snr: Annotated[bool, NEVER] = False
    """Rescales the noise schedule so that the last timestep is pure noise (Lin et al. 2023, arXiv:2305.08891,
    algorithm 1). For v-prediction; with epsilon the last timestep teaches nothing and its Min-SNR weight is 0. The
    exported scheduler says so."""

    timesteps: Annotated[tuple[int, int], ALLOW] = (0, 1000)
    """Timesteps are drawn evenly from the first (inclusive) to the second (exclusive), out of the schedule's 1000. (0,
    1000) is all of them."""

    timestep_bias: TimestepBiasSettings = TimestepBiasSettings()
    """Timesteps that are drawn more often. `objective.timesteps` says which are drawn at all."""

    flow: FlowSettings = FlowSettings()
    """Of models on straight paths, which have no timesteps of their own."""

    def contradictions(self) -> Iterator[str]:
        low, high = self.timesteps
        if not 0 <= low < high <= 1000:
            yield (f"objective.timesteps must be two numbers with 0 ≤ first < second ≤ 1000, got {low}, {high}")
        if self.weighting not in ("prediction", *OF_THE_LOSS) and self.loss not in ("mse", "l1"):
            yield (
                f"objective.weighting {self.weighting} weighs mse or l1, and objective.loss is {self.loss}; "
                "write objective.weighting=prediction"
            )
        if self.weighting in OF_THE_LOSS and self.min_snr_gamma is not None:
            yield (
                f"objective.min_snr_gamma and objective.weighting={self.weighting} both weigh levels of noise; leave "
                "one of them out"
            )
        elif self.weighting != "prediction" and self.min_snr_gamma is not None and self.min_snr_form != "x0":
            yield (
                f"objective.min_snr_gamma clamps the weight of objective.weighting={self.weighting} in the form x0 "
                "alone; write objective.min_snr_form=x0, or objective.weighting=prediction"
            )
        if self.noise_levels == "log-normal" and (self.timesteps != (0, 1000) or self.timestep_bias.strategy != "none"):
            yield (
                "objective.timesteps and objective.timestep_bias choose among timesteps, and with "
                "objective.noise_levels=log-normal none is; leave them out, or set objective.noise_levels=timesteps"
            )
