"""The run of a job: folder, length, saving, previews, logs."""

from __future__ import annotations

import re
from typing import Any

from mezzotint.compat.ai_toolkit._control import FILES, Files, needs_images, read_files, set_files, split_prompt
from mezzotint.compat.ai_toolkit._keys import Keys
from mezzotint.compat.ai_toolkit._model import ANIMATING, EXTRA_GUIDANCE, Arch
from mezzotint.compat.ai_toolkit._rows import OWN
from mezzotint.compat.ai_toolkit._train import to_updates
from mezzotint.compat.kit.derived import safe_name
from mezzotint.settings.sections.sample import SOLVER_CLASSES, parse_solver

_OPTION = re.compile(r"\s--[a-z]")
_OWN = {
    "neg": "sample.negative_prompt", "seed": "sample.seed", "guidance_scale": "sample.guidance",
    "sample_steps": "sample.steps", "fps": "sample.clip.rate", "num_frames": "sample.clip.frames",
}  # fmt: skip
"""Recipe paths of settings that a sample may have."""


def set_run(process: Keys, arch: Arch, name: str) -> None:
    """Sets the sections `run` and `sample`."""
    safe = safe_name(name)
    if safe != name:
        process.draft.note("job:config.name", f"is changed to {safe}, which is valid in names of folders and files")
    process.draft.set("run.name", safe, "name", "job:config.name")
    folder = f"{process.text('training_folder').rstrip('/')}/{safe}"
    process.set("run.folder", folder, "training_folder")
    if arch.has_adapter:
        process.set("run.export.folder", folder, "training_folder")
    process.set("run.resume", "auto", "training_folder")
    process.set("run.steps", to_updates(process, process.integer("train.steps")), "train.steps")
    _set_device(process)
    seed = process["training_seed"]
    process.set("run.seed", seed if isinstance(seed, int) else 0, "training_seed")
    if seed is None:
        process.note("training_seed", "not given; 0 is used, so that the run can be repeated")
    _set_saving(process, arch)
    if process["logging.use_wandb"]:
        process.set("run.wandb.mode", "online", "logging.use_wandb")
        process.set("run.wandb.project", process.text("logging.project_name"), "logging.project_name")
    _set_previews(process, arch)


def _set_device(process: Keys) -> None:
    device = process.text("device")
    kind, _, index = device.partition(":")
    if kind not in ("cuda", "cpu"):
        process.refuse("device", f"{device} is not supported", "write cuda or cpu")
        return
    process.set("run.device", "cpu" if kind == "cpu" and process.is_given("device") else "auto", "device")
    if index not in ("", "0"):
        process.note("device", f"choose the card with CUDA_VISIBLE_DEVICES={index}")


def _set_saving(process: Keys, arch: Arch) -> None:
    every = f"{to_updates(process, process.integer('save.save_every'))} steps"
    for path in ("run.save.every", "run.export.every"):
        process.set(path, every, "save.save_every")
    process.set("run.export.name", "{name}_{step:09}", "save.save_every")
    process.apply("save.dtype")
    if not arch.has_adapter:
        process.set("run.export.single_file", process.text("save.save_format") == "safetensors", "save.save_format")
    if process.is_given("save.max_step_saves_to_keep"):
        process.note("save.max_step_saves_to_keep", "is for checkpoints; exported models are not deleted")


def _set_previews(process: Keys, arch: Arch) -> None:
    """Sets prompts and how they are sampled."""
    samples = [Keys(process.draft, f"samples:sample.samples.{n}.") for n in range(process.integer("sample.samples"))]
    fitting = [one.check() for one in samples]
    if not all(fitting):
        return
    key = "sample.samples" if samples else "sample.prompts"
    prompts, images = _read_prompts(process, samples, key)
    if not prompts or process["train.disable_sampling"]:
        process.set("run.preview.every", None, "train.disable_sampling", key)
        return
    if needs_images(arch) and not any(files for _, files in images):
        does = "continues an image" if arch.name in ANIMATING else "edits images"
        text = f"without ctrl_img there are no previews: {arch.name} {does}"
        process.note(key, f"{text}; write --ctrl_img FILE after each prompt")
        process.set("run.preview.every", None, key)
        return
    every = to_updates(process, process.integer("sample.sample_every"))
    process.set("run.preview.every", f"{every} steps", "sample.sample_every")
    process.set("sample.prompts", prompts, key)
    process.set("sample.negative_prompt", process.text("sample.neg"), "sample.neg")
    process.set("sample.guidance", _guidance(process.number("sample.guidance_scale"), arch), "sample.guidance_scale")
    process.set("sample.size", [_side(process["sample.width"]), _side(process["sample.height"])],
                "sample.width", "sample.height")  # fmt: skip
    _set_solver(process)
    if arch.family == "wan":
        if arch.name in ANIMATING and process.integer("sample.num_frames") < 2:
            message = f"has one frame, and {arch.name} continues an image"
            process.refuse("sample.num_frames", message, "write num_frames: 41, or another 4n + 1", "E1017")
        process.set("sample.clip.frames", process.integer("sample.num_frames"), "sample.num_frames")
        process.set("sample.clip.rate", float(process.integer("sample.fps")), "sample.fps")
    _set_common(process, samples, arch)
    set_files(process, arch, images)


def _read_prompts(process: Keys, samples: list[Keys], key: str) -> tuple[list[str], list[tuple[str, Files]]]:
    """The prompts, and the flag and control images of each. key: of the prompts."""
    texts = [one.text("prompt") for one in samples] or list(process.texts("sample.prompts"))
    if trigger := process.text("trigger_word"):
        texts = [text.replace("[trigger]", trigger) for text in texts]
    split = [split_prompt(text) for text in texts]
    prompts = [prompt for prompt, _ in split]
    options = next((prompt for prompt in prompts if _OPTION.search(prompt)), None)
    if options is not None:
        process.refuse_until(OWN, key, f"write the prompt without options: {options[:40]}")
    own = [(_flag_of_image(one) or process.flag(key), read_files(one)) for one in samples]
    own = own or [(process.flag(key), {})] * len(prompts)
    return prompts, [(flag, files | more) for (flag, files), (_, more) in zip(own, split, strict=True)]


def _flag_of_image(sample: Keys) -> str:
    return next((sample.flag(key) for key in FILES if sample.is_given(key)), "")


def _side(value: Any) -> int:
    """A side in pixels, rounded down to a multiple of 8."""
    return int(value) // 8 * 8


def _set_solver(process: Keys) -> None:
    written = process.text("sample.sampler")
    solver = "euler" if written == "flowmatch" else parse_solver(written.removeprefix("custom_"))
    if solver not in SOLVER_CLASSES.values() and solver not in ("lcm", "dpm++-sde"):
        process.refuse("sample.sampler", f"{written} is not known", "write flowmatch, ddpm, ddim or euler", "E1017")
    else:
        process.set("sample.solver", solver, "sample.sampler")


def _guidance(scale: float, arch: Arch) -> float:
    """A guidance scale, where 1 is none, as the family's in Mezzotint."""
    return max(0.0, scale - 1.0) if arch.family in EXTRA_GUIDANCE else scale


def _set_common(process: Keys, samples: list[Keys], arch: Arch) -> None:
    """Sets settings of samples that are the same for all of them; others are not supported yet."""
    for name, path in _OWN.items():
        own = [one for one in samples if one.is_given(name)]
        if not own:
            continue
        if len(own) < len(samples) or len({one[name] for one in own}) > 1:
            own[0].refuse_until(OWN, name, "write it in sample, for all of them")
            continue
        value = _guidance(own[0].number(name), arch) if name == "guidance_scale" else own[0][name]
        own[0].set(path, value, name)
    sized = [one for one in samples if one.is_given("width") or one.is_given("height")]
    sizes = {(one["width"], one["height"]) for one in sized}
    if not sized:
        return
    if len(sized) < len(samples) or len(sizes) > 1:
        sized[0].refuse_until(OWN, "width" if sized[0].is_given("width") else "height", "write sizes in sample")
        return
    width, height = sizes.pop()
    sides = [_side(width or process["sample.width"]), _side(height or process["sample.height"])]
    sized[0].set("sample.size", sides, "width", "height")
