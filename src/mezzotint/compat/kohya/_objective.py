"""Noise, noise levels and the loss, as `objective`.

For SD3 and FLUX.1 the scripts have a formula of their own, and most options of the noise have no effect there.
"""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kohya._scripts import Script
from mezzotint.settings.sections.objective import ObjectiveSettings

_WITHOUT_EFFECT = {
    "sd3": (
        "noise_offset", "noise_offset_random_strength", "adaptive_noise_scale", "multires_noise_iterations",
        "min_snr_gamma", "scale_v_pred_loss_like_noise_pred", "debiased_estimation_loss", "zero_terminal_snr",
        "v_parameterization", "ip_noise_gamma", "ip_noise_gamma_random_strength", "clip_skip",
    ),
    "flux": (
        "noise_offset", "noise_offset_random_strength", "adaptive_noise_scale", "multires_noise_iterations",
        "min_snr_gamma", "scale_v_pred_loss_like_noise_pred", "debiased_estimation_loss", "zero_terminal_snr",
        "v_parameterization", "min_timestep", "max_timestep", "clip_skip",
    ),
}  # fmt: skip
_WITHOUT_EFFECT["chroma"] = _WITHOUT_EFFECT["flux"]
"""Options that the scripts of a family have and do not use."""
_LOSSES = {"l2": "mse", "l1": "l1", "huber": "pseudo-huber", "smooth_l1": "smooth-l1"}


def set_objective(draft: Draft, script: Script) -> None:
    """Sets the section `objective`."""
    _set_loss(draft, script)
    if script.is_flow:
        for flag in _WITHOUT_EFFECT[script.family]:
            if draft.values[flag] not in (None, False, 0):
                draft.note(flag, f"has no effect in {script.name}.py")
        (_set_sd3_levels if script.family == "sd3" else _set_flux_levels)(draft)
    else:
        _set_noise(draft)
        _set_weights(draft)
    if script.family != "sd3":
        _set_input_perturbation(draft)


def _set_loss(draft: Draft, script: Script) -> None:
    loss, schedule = draft.text("loss_type"), draft.text("huber_schedule")
    draft.set("objective.loss", _LOSSES[loss], "loss_type")
    if loss not in ("huber", "smooth_l1"):
        for flag in ("huber_c", "huber_scale", "huber_schedule"):
            if draft.values[flag] != draft.rows[flag].default:
                draft.note(flag, f"has no effect with --loss_type={loss}")
        return
    if script.is_flow and schedule == "snr":
        message = (
            f"is snr, its default, which fails in {script.name}.py"
            if not draft.is_given("huber_schedule")
            else (f"snr fails in {script.name}.py")
        )
        draft.refuse("huber_schedule", message, "write constant or exponential", "E1017")
        return
    if draft.check_bounds("huber_c"):
        draft.set("objective.huber_delta", draft.number("huber_c"), "huber_c")
    draft.set("objective.huber_schedule", schedule, "huber_schedule")
    if schedule != "snr" and draft.check_bounds("huber_scale"):
        draft.set("objective.huber_scale", draft.number("huber_scale"), "huber_scale")
    elif draft.number("huber_scale") != 1.0:
        draft.note("huber_scale", "has no effect with --huber_schedule=snr, as in the scripts")


def _set_noise(draft: Draft) -> None:
    _set_noise_offset(draft)
    if draft.values["multires_noise_iterations"] and draft.check_bounds("multires_noise_discount"):
        discount = draft.number("multires_noise_discount")
        draft.set("objective.pyramid_discount", discount, "multires_noise_discount", "multires_noise_iterations")
        text = "each level is smaller than the one before by a random factor; in the script, than the image, and there "
        draft.note("multires_noise_iterations", text + "are at most as many levels as given")
    draft.set("objective.zero_terminal_snr", bool(draft.values["zero_terminal_snr"]), "zero_terminal_snr")
    low, high = (draft.values[flag] for flag in ("min_timestep", "max_timestep"))
    if (low is not None or high is not None) and all(map(draft.check_bounds, ("min_timestep", "max_timestep"))):
        draft.set("objective.timesteps", [low or 0, 1000 if high is None else high], "min_timestep", "max_timestep")


def _set_noise_offset(draft: Draft) -> None:
    flag, scale = "noise_offset_random_strength", draft.values["adaptive_noise_scale"]
    if not draft.values["noise_offset"]:
        if scale:
            draft.refuse("adaptive_noise_scale", "needs --noise_offset", "write it, too, or leave this out", "E1017")
        if draft.values[flag]:
            draft.note(flag, "has no effect without --noise_offset")
    elif draft.check_bounds("noise_offset"):
        draft.set("objective.noise_offset", draft.number("noise_offset"), "noise_offset")
        if draft.values[flag]:
            draft.set("objective.noise_offset_random_strength", True, flag)
        if scale:
            draft.set("objective.noise_offset_adaptive_scale", scale, "adaptive_noise_scale")


def _set_input_perturbation(draft: Draft) -> None:
    flag, strength = "ip_noise_gamma_random_strength", draft.values["ip_noise_gamma"]
    if not strength:
        if draft.values[flag]:
            draft.note(flag, "has no effect without --ip_noise_gamma")
    elif draft.check_bounds("ip_noise_gamma"):
        draft.set("objective.input_perturbation", strength, "ip_noise_gamma")
        if draft.values[flag]:
            draft.set("objective.input_perturbation_random_strength", True, flag)


def _set_weights(draft: Draft) -> None:
    gamma, is_scaled = draft.values["min_snr_gamma"], bool(draft.values["scale_v_pred_loss_like_noise_pred"])
    if gamma:
        draft.set_all({"objective.min_snr_gamma": gamma, "objective.min_snr_form": "prediction"}, "min_snr_gamma")
    if draft.values["debiased_estimation_loss"]:
        _set_debiased(draft, is_scaled=is_scaled)
    elif is_scaled:
        _set_scaled(draft)


def _set_debiased(draft: Draft, *, is_scaled: bool) -> None:
    """The scripts multiply all weights of the loss; one of them is supported at a time."""
    flag = "debiased_estimation_loss"
    if draft.values["min_snr_gamma"] or is_scaled:
        other = "--scale_v_pred_loss_like_noise_pred" if is_scaled else "--min_snr_gamma"
        draft.refuse(flag, f"cannot be combined with {other} in Mezzotint", "leave one of them out")
    else:
        draft.set("objective.weighting", "debiased", flag)


def _set_scaled(draft: Draft) -> None:
    flag, gamma = "scale_v_pred_loss_like_noise_pred", draft.values["min_snr_gamma"]
    if not draft.values["v_parameterization"]:
        draft.refuse(flag, "is for models that predict v", "write --v_parameterization, too, or leave it out", "E1017")
    elif gamma or draft.text("loss_type") != "l2":
        other = "--min_snr_gamma" if gamma else "--loss_type"
        draft.refuse(flag, f"cannot be combined with {other} in Mezzotint", "leave one of them out")
    else:
        draft.set("objective.weighting", "epsilon", flag)


def _set_sd3_levels(draft: Draft) -> None:
    """σ is the density's number, shifted; the loss is the error of the clean latents."""
    scheme = draft.text("weighting_scheme")
    _set_density(draft, sign=1.0)
    draft.set("objective.flow.grid", "continuous", "weighting_scheme")
    draft.set("objective.flow.shift", draft.number("training_shift"), "training_shift")
    draft.set("objective.flow.preconditioned", True, "weighting_scheme")
    weighting = scheme.replace("_", "-") if scheme in ("sigma_sqrt", "cosmap") else "prediction"
    draft.set("objective.weighting", weighting, "weighting_scheme")
    low, high = (draft.values[flag] for flag in ("min_timestep", "max_timestep"))
    if low is None and high is None:
        return
    if draft.number("training_shift") != 1:
        message = "cannot be combined with --training_shift in Mezzotint"
        draft.refuse("min_timestep" if low is not None else "max_timestep", message, "leave one of them out")
        return
    levels = [draft.number("min_timestep") / 1000 if low else 0.0, draft.number("max_timestep") / 1000 if high else 1.0]
    draft.set("objective.flow.sigmas", levels, "min_timestep", "max_timestep")


def _set_flux_levels(draft: Draft) -> None:
    """The loss is the plain error of the velocity."""
    sampling, prediction = draft.text("timestep_sampling"), draft.text("model_prediction_type")
    match sampling:
        case "sigma":
            _set_density(draft, sign=-1.0)
            draft.set("objective.flow.grid", "table", "timestep_sampling")
        case "uniform":
            draft.set_all(
                {"objective.flow.density": "uniform", "objective.flow.grid": "continuous"}, "timestep_sampling"
            )
        case _:
            draft.set_all(
                {"objective.flow.density": "sigmoid", "objective.flow.grid": "continuous"}, "timestep_sampling"
            )
            draft.set("objective.flow.sigmoid_scale", draft.number("sigmoid_scale"), "sigmoid_scale")
    if sampling == "flux_shift":
        draft.set("objective.flow.shift", "resolution", "timestep_sampling")
    elif sampling in ("sigma", "shift"):
        draft.set("objective.flow.shift", draft.number("discrete_flow_shift"), "discrete_flow_shift")
    else:
        draft.set("objective.flow.shift", 1.0, "timestep_sampling")
    draft.set("objective.flow.preconditioned", False, "model_prediction_type")
    why = "compares another quantity than the velocity with the velocity, so the model cannot be used afterwards"
    if draft.is_given("model_prediction_type") and prediction != "raw":
        draft.refuse("model_prediction_type", f"{prediction} {why}", "write raw")
    elif prediction != "raw":
        draft.note("model_prediction_type", f"not given, read as raw; the script's default, {prediction}, {why}")
    if draft.text("weighting_scheme") in ("sigma_sqrt", "cosmap"):
        draft.note("weighting_scheme", "has no effect with raw predictions, as in the script")


def _set_density(draft: Draft, *, sign: float) -> None:
    """sign: −1 where a scheme's number counts from noise to image."""
    scheme = draft.text("weighting_scheme")
    density = {"logit_normal": "logit-normal", "mode": "mode"}.get(scheme, "uniform")
    draft.set("objective.flow.density", density, "weighting_scheme", "timestep_sampling")
    if density == "logit-normal":
        draft.set("objective.flow.mean", sign * draft.number("logit_mean") + 0.0, "logit_mean")
        draft.set("objective.flow.std", draft.number("logit_std"), "logit_std")
    elif density == "mode":
        draft.set("objective.flow.mode_scale", draft.number("mode_scale"), "mode_scale")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_objective(objective: ObjectiveSettings, script: Script) -> dict[str, Any]:
    """The options of an objective, or of the most similar one."""
    low, high = objective.timesteps
    if script.family == "sd3":
        low, high = (round(1000 * sigma) for sigma in objective.flow.sigmas)
    return {
        "loss_type": {ours: name for name, ours in _LOSSES.items()}.get(objective.loss),
        "multires_noise_iterations": 6 if objective.pyramid_discount else None,
        "min_snr_gamma": objective.min_snr_gamma,
        "scale_v_pred_loss_like_noise_pred": objective.weighting == "epsilon" or None,
        "debiased_estimation_loss": objective.weighting == "debiased" or None,
        "min_timestep": low or None,
        "max_timestep": high if high < 1000 else None,
        **(_write_levels(objective, script) if script.is_flow else {}),
    }


def _write_levels(objective: ObjectiveSettings, script: Script) -> dict[str, Any]:
    flow = objective.flow
    scheme = {"logit-normal": "logit_normal", "mode": "mode", "uniform": "uniform"}.get(flow.density, "logit_normal")
    scheme = {"sigma-sqrt": "sigma_sqrt", "cosmap": "cosmap"}.get(objective.weighting, scheme)
    shift = flow.shift if isinstance(flow.shift, float) else None
    values: dict[str, Any] = {"weighting_scheme": scheme, "logit_mean": flow.mean, "logit_std": flow.std}
    if script.family == "sd3":
        return values | {"training_shift": shift or 3.0}
    values |= {"model_prediction_type": "raw", "discrete_flow_shift": shift, "logit_mean": -flow.mean}
    if flow.grid == "table" and flow.shift not in ("auto", "resolution"):
        return values | {"timestep_sampling": "sigma"}
    is_normal = flow.density == "logit-normal" and not flow.mean
    sampling = flow.density if flow.density in ("uniform", "sigmoid") and shift == 1.0 else "shift"
    scale = flow.std if is_normal else flow.sigmoid_scale
    return values | {"timestep_sampling": sampling if shift else "flux_shift", "sigmoid_scale": scale}
