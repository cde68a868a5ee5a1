"""Noise levels and the loss, as `objective`: the squared error of the velocity at levels σ = t."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.musubi._scripts import TrainingScript

_MIXED = "mixed noise densities"
_BY_SIZE = {"flux2_shift": ("flux2",), "qwen_shift": ("qwen-image",), "flux_shift": ("z-image", "flux")}
"""Shifts by the number of tokens, and the families whose rule in Mezzotint is the same."""
_OTHERS_SHIFT = "shifts by the rule of another model"
_RESCALED = "noise levels rescaled to a range after their shift"
_OF_OTHERS = {"ideogram4_shift": "Ideogram 4", "krea2_shift": "Krea 2"}


def set_objective(draft: Draft, script: TrainingScript) -> None:
    """Sets the section `objective`."""
    draft.set("objective.loss", "mse", "weighting_scheme")
    draft.set("objective.flow.preconditioned", False, "weighting_scheme")
    scheme = draft.text("weighting_scheme")
    weighting = scheme.replace("_", "-") if scheme in ("sigma_sqrt", "cosmap") else "prediction"
    draft.set("objective.weighting", weighting, "weighting_scheme")
    sampling = draft.text("timestep_sampling")
    shift = _set_levels(draft, script, sampling)
    _set_range(draft, sampling, shift)
    if sampling != "sigma" and scheme in ("logit_normal", "mode"):
        draft.note("weighting_scheme", f"{scheme} has no effect with --timestep_sampling={sampling}, as in the scripts")


def _set_levels(draft: Draft, script: TrainingScript, sampling: str) -> float | str:
    """Sets density and shift; returns the shift."""
    flag = "timestep_sampling"
    draft.set("objective.flow.grid", "table" if sampling == "sigma" else "continuous", flag)
    shift: float | str = 1.0
    match sampling:
        case "sigma":
            _set_density(draft)
        case "uniform":
            draft.set("objective.flow.density", "uniform", flag)
        case "logsnr":
            draft.set("objective.flow.density", "log-snr", flag)
            _set_normal(draft, 1.0)
        case "qinglong_flux" | "qinglong_qwen":
            draft.refuse(flag, f"{sampling} needs {_MIXED}, which Mezzotint does not have yet", "use another")
        case _:
            draft.set("objective.flow.density", "sigmoid", flag)
            if draft.check_bounds("sigmoid_scale"):
                draft.set("objective.flow.sigmoid_scale", draft.number("sigmoid_scale"), "sigmoid_scale")
    if sampling in ("sigma", "shift"):
        if draft.check_bounds("discrete_flow_shift"):
            shift = draft.number("discrete_flow_shift")
        draft.set("objective.flow.shift", shift, "discrete_flow_shift")
        return shift
    if sampling in _OF_OTHERS:
        remedy = "use shift with --discrete_flow_shift"
        draft.refuse(flag, f"{sampling} is for {_OF_OTHERS[sampling]}, which Mezzotint does not have", remedy)
    elif sampling in _BY_SIZE:
        if script.family not in _BY_SIZE[sampling]:
            message = f"{sampling} in {script.name}.py needs {_OTHERS_SHIFT}, which Mezzotint does not have yet"
            draft.refuse(flag, message, "use shift with --discrete_flow_shift")
        shift = "resolution"
    draft.set("objective.flow.shift", shift, flag)
    return shift


def _set_density(draft: Draft) -> None:
    """The density of an index into a table that begins with noise."""
    scheme = draft.text("weighting_scheme")
    density = {"logit_normal": "logit-normal", "mode": "mode"}.get(scheme, "uniform")
    draft.set("objective.flow.density", density, "weighting_scheme", "timestep_sampling")
    if density == "logit-normal":
        _set_normal(draft, -1.0)
    elif density == "mode":
        draft.set("objective.flow.mode_scale", draft.number("mode_scale"), "mode_scale")


def _set_normal(draft: Draft, sign: float) -> None:
    draft.set("objective.flow.mean", sign * draft.number("logit_mean") + 0.0, "logit_mean")
    if draft.check_bounds("logit_std"):
        draft.set("objective.flow.std", draft.number("logit_std"), "logit_std")


def _set_range(draft: Draft, sampling: str, shift: float | str) -> None:
    """Sets the range of noise levels, which Mezzotint limits before the shift."""
    low, high = (draft.values[flag] for flag in ("min_timestep", "max_timestep"))
    if (low is None and high is None) or not all(map(draft.check_bounds, ("min_timestep", "max_timestep"))):
        return
    first, last = draft.number("min_timestep") if low else 0.0, draft.number("max_timestep") if high else 1000.0
    flag = "min_timestep" if low is not None else "max_timestep"
    if first >= last:
        draft.refuse("min_timestep", f"must be below --max_timestep, got {first:g} and {last:g}", code="E1017")
    elif sampling == "sigma":
        assert isinstance(shift, float)
        ends = (1 - last / 1000, 1 - first / 1000)
        levels = [shift * end / (1 + (shift - 1) * end) for end in ends]
        draft.set("objective.flow.sigmas", levels, "min_timestep", "max_timestep")
        text = "with sigma they count positions in a table that begins with noise, as in the scripts"
        draft.note(flag, text)
    elif shift != 1.0 and (first, last) != (0.0, 1000.0):
        message = f"with {sampling} needs {_RESCALED}, which Mezzotint does not have yet"
        draft.refuse(flag, message, "leave it out, or use --timestep_sampling=sigmoid")
    else:
        draft.set("objective.flow.sigmas", [first / 1000, last / 1000], "min_timestep", "max_timestep")
