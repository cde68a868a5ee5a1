"""Settings that depend on several flags, step by step. A step applies to every script that has its flags; other
differences between scripts are in their entries (`_scripts.py`).

Noise levels: u of the flow-matching scripts goes from noise to the image, Mezzotint's σ from the image to noise. So
`logit_mean` changes its sign; all other densities are symmetric. Levels are those of the scheduler's table, as in the
scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mezzotint.compat.diffusers_scripts._flags import BNB, PRECISIONS, SETTINGS
from mezzotint.compat.diffusers_scripts._images import compute_data
from mezzotint.compat.diffusers_scripts._notes import note_differences
from mezzotint.compat.diffusers_scripts._scripts import ExampleScript
from mezzotint.compat.kit import setting_files, timestep_bias
from mezzotint.compat.kit.derived import run_name
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.reading import format_value

_HUB_ID = re.compile(r"(?!\.{1,2}/)[\w.-]+/[\w.-]+")
"""A possible hub id; an existing folder of this form has priority."""
_POLYNOMIAL_END = 1e-7
"""The end of diffusers' polynomial schedule, independent of the peak rate."""
_MODE_SCALES = (-1.0, 1.75)


def compute(draft: Draft, script: ExampleScript) -> None:
    """Sets what depends on several flags, and adds notes."""
    for selector, flags, values in SETTINGS:
        if script.is_one_of(selector):
            draft.set_all(values, *flags.split())
    _set_model(draft, script)
    compute_data(draft, script)
    if script.mode != "embeddings":
        _set_trained_parts(draft, script)
    if script.mode == "adapter":
        _set_adapter(draft, script)
    _set_rate(draft)
    _set_optimizer(draft, script)
    _set_objective(draft)
    _set_noise_levels(draft)
    _set_precision(draft)
    if draft.values.get("bnb_quantization_config_path"):
        _set_quantization(draft)
    _set_saving(draft)
    _set_previews(draft, script)
    _set_tracking(draft, script)
    note_differences(draft, script)


def _set_model(draft: Draft, script: ExampleScript) -> None:
    path, revision = draft.text("pretrained_model_name_or_path"), draft.text("revision")
    if revision and _HUB_ID.fullmatch(path):
        path = f"{path}@{revision}"
    elif revision:
        draft.note("revision", "a folder has no revisions; it is ignored")
    draft.set_all({"model.path": path, "model.family": script.family}, "pretrained_model_name_or_path")
    if "pretrained_vae_model_name_or_path" in draft.rows:
        draft.apply("pretrained_vae_model_name_or_path")
    if "text_encoder_out_layers" in draft.rows:
        _set_text_layers(draft)


def _set_text_layers(draft: Draft) -> None:
    """Sets the layers that the command names; by default those of the model's pipeline."""
    flag, value = "text_encoder_out_layers", draft.values["text_encoder_out_layers"]
    assert isinstance(value, tuple)
    if not draft.is_given(flag):
        message = "not given; layers 9, 18 and 27 are used, as in the model's pipeline; in the script, 10, 20 and 30"
        draft.note(flag, message)
        return
    layers = [int(number) for number in value]
    if len(layers) != 3 or layers != list(value) or min(layers) < 0:
        draft.refuse(flag, "must be three numbers of layers", "write 9 18 27", "E1017")
    draft.set("model.flux2.text_layers", layers, flag)


# --- trained parts and the update--------------------------------------------------------------------------------------


def _trained_text_encoders(draft: Draft, script: ExampleScript) -> tuple[str, ...]:
    """The trained text encoders, which are those of CLIP."""
    if not draft.values.get("train_text_encoder"):
        return ()
    return ("text_encoder", "text_encoder_2") if script.family in ("sdxl", "sd3") else ("text_encoder",)


def _set_trained_parts(draft: Draft, script: ExampleScript) -> None:
    flags = ["train_text_encoder"] if "train_text_encoder" in draft.rows else []
    if script.is_one_of("flow+adapter"):
        flags = flags or ["rank"]
    elif script.mode == "adapter" or not flags:
        flags.append("pretrained_model_name_or_path")
    draft.set("model.train", ["denoiser", *_trained_text_encoders(draft, script)], *flags)
    if draft.values.get("pre_compute_text_embeddings") and draft.values["train_text_encoder"]:
        draft.refuse(
            "train_text_encoder",
            "captions that are encoded once cannot train the text encoder",
            "leave one of the two out",
        )


def _set_adapter(draft: Draft, script: ExampleScript) -> None:
    draft.apply(*(flag for flag in ("use_dora", "output_kohya_format") if flag in draft.rows))
    if "lora_alpha" in draft.rows and draft.check_bounds("lora_alpha"):
        draft.set("model.adapter.alpha", float(draft.integer("lora_alpha")), "lora_alpha")
    if "lora_layers" not in draft.rows:
        return
    texts, layers = _trained_text_encoders(draft, script), _layers(draft, script)
    # peft finds a layer by the end of its path: a full name, or a name after any dot
    outer, in_both = script.outer.split(), script.in_both.split()
    targets = [f"denoiser/{name if name.partition('.')[0] in outer else f'*.{name}'}" for name in layers]
    targets += [f"{part}/attention" for part in texts]
    targets += [f"denoiser/{name}" for name in layers if name in in_both]
    flags = ("lora_layers", "train_text_encoder") if texts else ("lora_layers",)
    draft.set("model.adapter.targets", targets, *(("lora_blocks",) if draft.is_given("lora_blocks") else flags))


def _layers(draft: Draft, script: ExampleScript) -> list[str]:
    """The layers that the command names, or the script's default; in all blocks, or in those that the command names."""
    text, layers = draft.values["lora_layers"], script.layers.split()
    if text is not None:
        layers = [name.strip() for name in str(text).split(",") if name.strip()]
        if not layers:
            draft.refuse("lora_layers", "names no layer", "write them like to_k,to_q,to_v,to_out.0", "E1017")
    if not draft.is_given("lora_blocks"):
        return layers
    blocks = [block.strip() for block in draft.text("lora_blocks").split(",")]
    if not all(block.isdigit() for block in blocks):
        draft.refuse("lora_blocks", "must be numbers of blocks", "write them like 12,30", "E1017")
    return [f"transformer_blocks.{block}.{layer}" for block in blocks for layer in layers]


def _set_rate(draft: Draft) -> None:
    """Sets the rate and its schedule, in optimizer steps as given."""
    rate, kind = draft.number("learning_rate"), draft.text("lr_scheduler")
    if draft.values["scale_lr"]:
        times = (
            draft.integer("gradient_accumulation_steps") * draft.integer("train_batch_size") * draft.launched.processes
        )
        draft.note("scale_lr", f"{rate:g} × {times} = {rate * times:g}")
        rate *= times
    draft.set("optim.lr", rate, "scale_lr" if draft.values["scale_lr"] else "learning_rate")
    warmup = draft.integer("lr_warmup_steps")
    draft.check_bounds("lr_warmup_steps")
    if kind == "constant" and warmup:
        if "lr_warmup_steps" in draft.named:
            draft.note(
                "lr_warmup_steps", "constant has no warm-up in the script; --lr_scheduler=constant_with_warmup has one"
            )
        warmup = 0
    ours = {"cosine_with_restarts": "restarts", "constant_with_warmup": "constant"}.get(kind, kind)
    if kind == "piecewise_constant":
        message = "piecewise_constant has no rules in the script"
        draft.refuse("lr_scheduler", message, "use another one")
    draft.set("optim.schedule.kind", ours, "lr_scheduler")
    draft.set("optim.schedule.warmup_steps", max(0, warmup), "lr_warmup_steps")
    if kind == "polynomial" and rate <= _POLYNOMIAL_END:
        draft.refuse("learning_rate", f"must be above 1e-07, where polynomial ends, got {rate:g}", code="E1017")
    floor = _POLYNOMIAL_END / rate if kind == "polynomial" and rate > 0 else 0.0
    draft.set("optim.schedule.floor", floor, "lr_scheduler")


def _set_optimizer(draft: Draft, script: ExampleScript) -> None:
    """Sets optimizer, clipping, average; text encoders have their own rate and weight decay."""
    betas = [draft.number("adam_beta1"), draft.number("adam_beta2")]
    draft.set("optim.optimizer.betas", betas, "adam_beta1", "adam_beta2")
    if "max_grad_norm" in draft.rows:
        norm = draft.number("max_grad_norm")
        if norm <= 0:
            message = f"must be above 0, got {norm:g}: it would make every gradient zero"
            draft.refuse("max_grad_norm", message, code="E1017")
        draft.set("optim.clip.norm", norm, "max_grad_norm")
    is_prodigy = str(draft.values.get("optimizer")).lower() == "prodigy"
    if is_prodigy:
        values = {"kind": "prodigy", "d_beta": draft.values["prodigy_beta3"]}
        draft.set_all({f"optim.optimizer.{key}": one for key, one in values.items()}, "optimizer", "prodigy_beta3")
        draft.set_all({"optim.optimizer.bias_correction": True, "optim.optimizer.safeguard_warmup": True}, "optimizer")
        if draft.values["use_8bit_adam"]:
            draft.note("use_8bit_adam", "without AdamW it has no effect, as in the script")
    if "text_encoder_lr" in draft.rows:
        _set_text_optimizer(draft, _trained_text_encoders(draft, script), is_prodigy)


def _set_text_optimizer(draft: Draft, texts: Sequence[str], is_prodigy: bool) -> None:
    if not texts:
        return
    options = dict(draft.settings["optim"]["optimizer"]) | {
        "weight_decay": draft.number("adam_weight_decay_text_encoder")
    }
    rate = draft.number("text_encoder_lr") or draft.number("learning_rate")
    for part in texts if draft.check_bounds("adam_weight_decay_text_encoder") else ():
        values = {f"optim.part_optimizer.{part}.{name}": value for name, value in options.items()}
        draft.set_all(values, "adam_weight_decay_text_encoder")
    for part in texts if draft.check_bounds("text_encoder_lr") and not is_prodigy else ():
        draft.set(f"optim.part_lr.{part}", rate, "text_encoder_lr")


def _set_objective(draft: Draft) -> None:
    if draft.values.get("snr_gamma") is not None and draft.values.get("with_prior_preservation"):
        message = "applies to the subject's images only in the script; Mezzotint would apply it to class images, too"
        draft.refuse("snr_gamma", message, "leave one of the two out")
    if draft.values.get("prediction_type") == "sample":
        message = "the script trains sample on the prediction minus the noise, which no sampler can use"
        draft.refuse("prediction_type", message, "use epsilon or v_prediction")
    if "timestep_bias_strategy" in draft.rows:
        timestep_bias.notes(draft)
    if "precondition_outputs" in draft.rows:
        draft.set("objective.flow.preconditioned", bool(draft.values["precondition_outputs"]), "precondition_outputs")


def _set_noise_levels(draft: Draft) -> None:
    """Sets the noise levels of flow-matching models and their weights."""
    if "weighting_scheme" not in draft.rows:
        return
    scheme = draft.text("weighting_scheme")
    kind = {"logit_normal": "logit-normal", "mode": "mode"}.get(scheme, "uniform")
    weighting = scheme.replace("_", "-") if scheme in ("sigma_sqrt", "cosmap") else "prediction"
    draft.set_all({"objective.flow.density": kind, "objective.weighting": weighting}, "weighting_scheme")
    low, high = _MODE_SCALES
    if scheme == "logit_normal":
        draft.set("objective.flow.mean", 0.0 - draft.number("logit_mean"), "logit_mean")
    elif scheme == "mode" and not low <= draft.number("mode_scale") <= high:
        message = f"must be between {low:g} and {high:g}, beyond which σ leaves its range"
        draft.refuse("mode_scale", message, code="E1017")


# --- the run ----------------------------------------------------------------------------------------------------------


def _set_precision(draft: Draft) -> None:
    """Sets the compute dtype and its origin; trained weights are stored in float32."""
    precision_flag, launched = draft.text("mixed_precision"), draft.launched.mixed_precision
    word = precision_flag or launched or "no"
    if word not in PRECISIONS:
        draft.refuse(
            "mixed_precision", f"the launcher's precision is {format_value(word)}", "no, fp16 and bf16 are supported"
        )
        return
    precision = PRECISIONS[word]
    draft.set("run.precision", precision, "mixed_precision")
    draft.set("run.frozen_dtype", "fp32" if word == "no" else "same", "mixed_precision")
    if launched and not precision_flag:
        draft.origin["run.precision"] = f"the launcher ({draft.launched.launcher})"
        draft.note("mixed_precision", f"not given; {precision}, as the launcher sets")
    elif launched and precision_flag != launched:
        draft.note("mixed_precision", f"{precision}; the flag overrides the launcher's {launched}")
    if "upcast_before_saving" in draft.rows:
        export_dtype = "fp32" if draft.values["upcast_before_saving"] else precision
        draft.set("run.export.dtype", export_dtype, "upcast_before_saving", "mixed_precision")


def _set_quantization(draft: Draft) -> None:
    """Sets the quantization of the frozen model from the bitsandbytes file."""
    four, eight = (draft.values[f"{BNB}load_in_{bits}bit"] for bits in (4, 8))
    if bool(four) == bool(eight):
        message = "asks for both" if four else "asks for neither"
        draft.refuse("bnb_quantization_config_path", f"{message} of load_in_4bit and load_in_8bit", "write one of them")
    draft.set("run.frozen_dtype", "nf4" if four else "int8", "bnb_quantization_config_path")
    if four and draft.text(f"{BNB}bnb_4bit_quant_type") == "fp4":
        draft.note(
            f"{BNB}bnb_4bit_quant_type",
            "nf4 is used, whose levels match the distribution of weights; in the script, fp4",
        )
    message = "the text encoder, which encodes before the training, is quantized, too; in the script, it is not"
    draft.note("bnb_quantization_config_path", message)


def _set_saving(draft: Draft) -> None:
    """Sets folder, resuming, seed."""
    folder = draft.text("output_dir")
    draft.set_all({"run.folder": folder, "run.export.folder": folder, "run.name": run_name(folder)}, "output_dir")
    draft.set("run.resume", _resume_from(draft), "resume_from_checkpoint")
    seed = draft.values["seed"]
    draft.check_bounds("seed")
    draft.set_all({"run.seed": seed or 0, "sample.seed": seed or 0}, "seed")
    if seed is None:
        draft.note("seed", "not given; 0 is used, so that the run can be repeated. Other seeds give other results")


def _resume_from(draft: Draft) -> str:
    path = draft.text("resume_from_checkpoint")
    if path in ("", "latest"):
        return "auto" if path else "never"
    last = setting_files.file_name(path.rstrip("/\\"))
    numbered = re.fullmatch(r"checkpoint-(\d+)", last)
    if numbered is None:
        return path
    # the scripts, too, use only the last part of the path, in output_dir
    step = f"step-{int(numbered[1]):08d}"
    draft.note("resume_from_checkpoint", f"{last} is checkpoints/{step} of --output_dir")
    return step


def _set_previews(draft: Draft, script: ExampleScript) -> None:
    """Sets what is sampled during the run, when, and how."""
    flag = "validation_prompts" if "validation_prompts" in draft.rows else "validation_prompt"
    is_by_epoch = draft.values.get("validation_epochs") is not None
    when, unit = ("validation_epochs", "epochs") if is_by_epoch else ("validation_steps", "steps")
    counts = [one for one in (when, "num_validation_images") if one in draft.rows]
    written, last = draft.values[flag], _final_prompt(draft)
    prompts = list(map(str, written)) if isinstance(written, tuple) else [str(written)] if written else []
    if script.data == "edits":
        prompts = _set_edited_image(draft, prompts)
    source, every = flag, None
    fitting = [draft.check_bounds(one) for one in counts] if prompts else []
    if prompts and all(fitting):
        source, every = when, f"{draft.integer(when)} {unit}"
        _note_times(draft, script)
    elif last and draft.check_bounds("num_validation_images"):
        prompts, flag, length = [last], "final_validation_prompt", draft.values["max_train_steps"]
        source, every = flag, f"{length} steps" if length else f"{draft.integer('num_train_epochs')} epochs"
    elif not prompts:
        for one in counts:
            if one in draft.named:
                draft.note(one, f"without --{flag} nothing is sampled")
    draft.set("run.preview.every", every, source)
    if every is not None:
        times = draft.integer("num_validation_images") if "num_validation_images" in draft.rows else 1
        draft.set("sample.prompts", prompts * times, flag)
    if "run.preview.weights" in draft.rows[flag].to:
        weights = "ema" if draft.values.get("use_ema") else "raw"
        draft.set("run.preview.weights", weights, "use_ema" if "use_ema" in draft.rows else flag)
    if script.preview:
        steps, guidance = script.preview
        draft.set_all({"sample.steps": steps, "sample.guidance": guidance}, flag)


def _set_edited_image(draft: Draft, prompts: list[str]) -> list[str]:
    """Sets the image that previews edit. Without it or without a prompt there are none, as in the scripts."""
    flag = next(one for one in ("val_image_url", "val_image_url_or_path") if one in draft.rows)
    image = draft.text(flag)
    if not image or not prompts:
        absent = flag if prompts else "validation_prompt"
        if image or prompts:
            draft.note("validation_prompt" if prompts else flag, f"without --{absent} nothing is sampled")
        return []
    if re.match(r"[a-z]+://", image, re.IGNORECASE):
        draft.refuse(flag, "is an address, and a run downloads nothing", "save the image, and write its path")
    draft.set("sample.conditions.source", image, flag)
    return prompts


def _final_prompt(draft: Draft) -> str:
    """The prompt that is sampled at the end, unless another flag excludes it."""
    last = str(draft.values.get("final_validation_prompt") or "")
    why = "validation_prompt" if draft.values.get("validation_prompt") else "skip_final_inference"
    if last and draft.values[why]:
        draft.note("final_validation_prompt", f"--{why} is used")
        return ""
    return last


def _note_times(draft: Draft, script: ExampleScript) -> None:
    """Adds a note if the script samples previews at other times."""
    if script.is_flow:
        epochs = draft.integer("validation_epochs")
        draft.note("validation_epochs", f"previews at step 0, after every {epochs} epochs and at the end")
    elif script.data in ("captions", "edits") and "validation_epochs" in draft.rows:
        epochs = draft.integer("validation_epochs")
        theirs = f"; in the script, of epochs 1, {1 + epochs}, …" if epochs > 1 else ""
        ours = f"at step 0 and at the end of epochs {epochs}, {2 * epochs}, …{theirs}"
        draft.note(
            "validation_epochs", f"previews {ours}. They have the size --resolution and the solver of sample.solver"
        )


def _set_tracking(draft: Draft, script: ExampleScript) -> None:
    """Sets trackers."""
    report = draft.text("report_to")
    if report == "comet_ml":
        draft.refuse("report_to", "comet_ml is not supported; tensorboard, wandb and metrics.jsonl are", "use one")
    if report == "all":
        draft.note("report_to", "of all trackers, only TensorBoard is written")
    draft.set("run.tensorboard", report != "wandb", "report_to")
    if report == "wandb":
        flag = "tracker_project_name" if "tracker_project_name" in draft.rows else "report_to"
        project = draft.text(flag) if flag != "report_to" else script.project
        draft.set_all({"run.wandb.mode": "online"}, "report_to")
        draft.set("run.wandb.project", project, flag)
