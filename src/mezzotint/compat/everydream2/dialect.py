"""The dialect `everydream2`: translates command lines, train.json, optimizer.json and validation files of EveryDream2's
`train.py` to recipes. Where its document and its code disagree, the document is followed.

Not copied, with a note where it matters: the sum of gradients over `grad_accum` (they are averaged), a resume at the
start of the epoch, unknown keys that are silently ignored, a null that is not the default.
"""

from __future__ import annotations

from mezzotint.compat.everydream2 import _optimizer, _run
from mezzotint.compat.everydream2._rows import FLAGS, OPTIMIZER, VALIDATION
from mezzotint.compat.kit.dialect import Dialect, Draft
from mezzotint.settings.sections.data import TABLES


def compute(draft: Draft) -> None:
    """Sets what depends on several flags or is not a plain copy, and adds notes."""
    fitting = [draft.check_bounds(flag) for flag in ("batch_size", "grad_accum", "max_epochs")]
    if not all(fitting):
        return  # the rest depends on valid counts
    parts = _trained_parts(draft)
    _set_model(draft, parts)
    _set_data(draft)
    _set_objective(draft)
    _set_precision(draft)
    _optimizer.update(draft, parts)
    _run.run(draft)
    if draft.integer("grad_accum") > 1:
        draft.note("grad_accum", "gradients are averaged over its batches, as documented; EveryDream2 adds them up")


def _trained_parts(draft: Draft) -> tuple[str, ...]:
    parts = [] if draft.values["disable_unet_training"] else ["denoiser"]
    parts += [] if draft.values["disable_textenc_training"] else ["text_encoder"]
    if not parts:
        draft.refuse("disable_unet_training", "disable_textenc_training is given, too: nothing is left to train")
    return tuple(parts)


def _set_model(draft: Draft, parts: tuple[str, ...]) -> None:
    draft.set("model.family", "sd", "resume_ckpt")
    draft.set("model.train", list(parts), "disable_textenc_training", "disable_unet_training")
    skip = draft.integer("clip_skip")
    if not 0 <= skip <= 4:
        draft.refuse("clip_skip", f"must be 0 to 4, got {skip}", "2 is the penultimate layer", "E1017")
    draft.set("model.clip_skip", max(0, skip - 1), "clip_skip")


def _set_data(draft: Draft) -> None:
    root = draft.values["data_root"]
    if isinstance(root, tuple) and len(root) > 1:
        draft.set("data.sets", [{"path": path} for path in root], "data_root")
    else:
        draft.set("data.path", root[0] if isinstance(root, tuple) else root, "data_root")
    draft.set("data.format", "everydream", "data_root")
    _set_resolution(draft)
    draft.set_all({"data.crop": "triangular", "data.jitter": 0.02, "data.resize": "bicubic"}, "resolution")
    draft.set_all({"data.remainder": "repeat", "data.remainder_power": 1.5}, "batch_size")
    if draft.number("cond_dropout") > 0.26:
        draft.note("cond_dropout", "above 0.26 captions have little effect, and the data influences all prompts")
    if draft.check_bounds("keep_tags") and draft.values["keep_tags"] and not draft.values["shuffle_tags"]:
        draft.note("keep_tags", "applies to captions that are shuffled by shuffle_tags or by the files of a folder")
    _set_rating(draft)


def _set_resolution(draft: Draft) -> None:
    written = draft.integer("resolution")
    side = written // 64 * 64
    if side not in TABLES:
        near = min(TABLES, key=lambda table_side: abs(table_side - written))
        draft.refuse("resolution", f"{written} has no buckets in EveryDream2", f"write {near}", "E1017")
        return
    if side != written:
        draft.note("resolution", f"{written} is rounded down to {side}, a multiple of 64")
    draft.set_all({"data.resolution": side, "data.buckets.shape": "table"}, "resolution")


def _set_rating(draft: Draft) -> None:
    flag = "rated_dataset_target_dropout_percent"
    if not draft.values["rated_dataset"]:
        if draft.values[flag] != 50:
            draft.note(flag, "without rated_dataset ratings are ignored")
        return
    percent = min(100, max(0, draft.integer(flag)))
    if percent != draft.values[flag]:
        draft.note(flag, f"{draft.values[flag]} is read as {percent}")
    draft.set("data.rating.fraction", percent / 100, flag, "rated_dataset")
    draft.set("data.rating.epochs", draft.values["max_epochs"], "rated_dataset", "max_epochs")


def _set_objective(draft: Draft) -> None:
    draft.apply("loss_type", "min_snr_gamma")
    discount = draft.values["pyramid_noise_discount"] or 0.0
    assert isinstance(discount, float)
    draft.set("objective.pyramid_discount", max(0.0, discount), "pyramid_noise_discount")
    span = [draft.integer("timestep_start"), draft.integer("timestep_end")]
    draft.set("objective.timesteps", span, "timestep_start", "timestep_end")
    # offset noise; -1 is zero terminal SNR without it
    flag, switch = "zero_frequency_noise_ratio", "enable_zero_terminal_snr"
    ratio = draft.number(flag)
    is_zero = bool(draft.values[switch]) or ratio == -1
    draft.set("objective.noise_offset", max(0.0, ratio), flag)
    draft.set("objective.zero_terminal_snr", is_zero, *((flag, switch) if ratio == -1 else (switch, flag)))
    draft.set("sample.guidance_rescale", 0.7 if is_zero else 0.0, switch, flag)
    if ratio == -1:
        draft.note(flag, "-1 is zero terminal SNR, without offset noise")
    elif ratio < 0:
        draft.note(flag, f"{ratio:g} is read as 0; only -1 is zero terminal SNR")
    if is_zero:
        message = "zero terminal SNR is for models that predict v (SD 2.1 at 768)"
        named = switch if draft.values[switch] else flag
        draft.note(named, f"{message}; samples use trailing timesteps")


def _set_precision(draft: Draft) -> None:
    """fp16 autocast with float32 weights; frozen weights in fp16."""
    if draft.launched.mixed_precision is not None:
        kind = "fp32" if draft.values["disable_amp"] else "fp16"
        draft.note("disable_amp", f"{kind}, whatever the launcher's precision")
    draft.apply("disable_amp")


DIALECT = Dialect(
    name="everydream2",
    about="EveryDream2's train.py: Stable Diffusion 1.x and 2.x, with train.json and optimizer.json",
    rows=FLAGS,
    compute=compute,
    scripts=("train.py",),
    other_scripts={
        "chain.py": "starts several trainings one after another; type the command of each, with the model that "
        "the previous one saved (its folder in ckpts/) as --resume_ckpt"
    },
    accumulation="grad_accum",
    config="config",
    tables=(OPTIMIZER, VALIDATION),
)
