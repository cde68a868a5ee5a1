"""What diffusers' DreamBooth scripts for models on straight paths have in common, of the head of August 2026: rows by
flag, and what several flags decide together.

Their u is counted from noise to the picture, ours is σ: `logit_mean` changes its sign, all other densities are
symmetric. Levels are those of the scheduler's table, as there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from mezzotint.compat.diffusers_scripts.dialect import _dreambooth, _lora
from mezzotint.compat.diffusers_scripts.dialect._common import rows, with_default
from mezzotint.compat.kit.dialect import Draft, FileTable, Row, idle, refused, row

CELL = 16
"""Pixels of which sides are multiples, of all these models."""
_SCHEMES = ("sigma_sqrt", "logit_normal", "mode", "cosmap", "none")
_LATER = ("sigma_sqrt", "cosmap")
"""Those that weigh the loss, and draw all levels alike."""
_OWN = {"logit_mean": "logit_normal", "logit_std": "logit_normal", "mode_scale": "mode"}
"""Flags of one scheme alone."""
_MODE_SCALES = (-1.0, 1.75)
_EMPTY = "a picture whose caption is empty has none; there, it has --instance_prompt"

ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")
"""What most of the scripts put a LoRA on."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script. family: whose model it trains. project: its name for itself at its trackers. texts: text encoders that
    it may train. remainder: what becomes of pictures that fill no batch, where that is not the usual. parts_weights:
    whether it gives class pictures the weights of their own levels."""

    family: str
    project: str
    texts: tuple[str, ...] = ()
    remainder: str = ""
    parts_weights: bool = False


MODEL = rows("pretrained_model_name_or_path", "revision", "variant")
CLASS_WITHOUT_PRECISION = tuple(one for one in _dreambooth.CLASS if one.flag != "prior_generation_precision")
UPDATE = (
    with_default("learning_rate", 1e-4),
    *_dreambooth.UPDATE[1:6],
    row("use_8bit_adam", False, "optim.optimizer.kind", "on a GPU of CUDA, with the extra eight-bit; plain AdamW "
        "elsewhere; the start reports which", on="adamw-8bit-or-adamw", off="adamw"),
    *rows("adam_beta1", "adam_beta2"),
    with_default("adam_weight_decay", 1e-4),
    *rows("adam_epsilon", "max_grad_norm"),
    *_dreambooth.PRODIGY,
)  # fmt: skip
_NO_ENCODER = "no text encoder is trained, there as here"
NO_TEXT = (
    idle("text_encoder_lr", 5e-6, _NO_ENCODER),
    idle("adam_weight_decay_text_encoder", 1e-3, _NO_ENCODER),
)
TEXT = (
    row("train_text_encoder", False, "model.train data.cache.text", "CLIP's text encoders are trained, too"),
    *_dreambooth.OF_TEXT,
)
PRECONDITIONED = row(
    "precondition_outputs", 1, "objective.flow.preconditioned", "the error is that of the clean latents"
)
GUIDANCE = row("guidance_scale", 3.5, "model.flux.guidance", "the scale that dev is given while it is trained", least=0)
RUN = tuple(one for one in _dreambooth.PLAIN_RUN if one.flag != "enable_xformers_memory_efficient_attention")
NO_GUIDANCE = idle("guidance_scale", 3.5, "this model is given no scale of guidance, there as here")
NO_NPU = idle("enable_npu_flash_attention", False, "torch's own attention is used, on whatever device there is")
CACHED = row("cache_latents", False, "data.cache.latents data.cache.crops objective.posterior",
    "pictures are encoded once, and the autoencoder is let go")  # fmt: skip
UPCAST = row("upcast_before_saving", False, "run.export.dtype",
    "the adapter's file in float32; without it, in the type of the arithmetic")  # fmt: skip
ADAPTER = (
    replace(_lora.RANK, about="LoRA of the layers of lora_layers",
            to=("model.adapter.rank", "model.adapter.kind", "model.adapter.init")),
    row("lora_alpha", 4, "model.adapter.alpha", "the change is multiplied by alpha / rank", above=0),
    _lora.DROPOUT,
    row("lora_layers", str, "model.adapter.targets", "layers by the ends of their names, with commas between"),
)  # fmt: skip
FINAL = (
    row("final_validation_prompt", str, "sample.prompts run.preview.every", "drawn before the first step and at the "
        "end, where there is no validation_prompt"),
    row("skip_final_inference", False, "sample.prompts run.preview.every", "final_validation_prompt is not drawn"),
)  # fmt: skip
BUCKETS = (
    row("use_aspect_ratio_buckets", False, "data.buckets.shape data.buckets.sizes",
        "eleven shapes from 1:2 to 2:1 of about resolution² pixels", on="list", off="square"),
    row("aspect_ratio_buckets", str, "data.buckets.sizes", "h1,w1;h2,w2;… in their place"),
)  # fmt: skip
OFFLOAD = row("offload", False, "data.cache.latents data.cache.crops",
    "pictures are encoded before the training as captions are, so that no encoder waits beside it")  # fmt: skip
FSDP_TEXT = idle("fsdp_text_encoder", False, "captions are encoded before the training, by an encoder that is let go")
DROPOUT = row("caption_dropout", 0.0, "data.captions.dropout",
    "the chance that a caption of the subject is left out at a visit; never of a class picture", least=0)  # fmt: skip
_BNB = "bnb:"
_AS_IT_IS = "it is settled here by the kind of bits alone"
BNB = row("bnb_quantization_config_path", str, "run.frozen_dtype",
    "a JSON file for bitsandbytes: the frozen model in 4 or 8 bits, by the extra low-bit", optional=True)  # fmt: skip
BNB_FILE = FileTable(
    flag="bnb_quantization_config_path",
    prefix=_BNB,
    rows=(
        row("load_in_4bit", False, "run.frozen_dtype", "matrices in 4 bits", on="nf4"),
        row("load_in_8bit", False, "run.frozen_dtype", "matrices in 8 bits", on="int8"),
        row("bnb_4bit_quant_type", "fp4", "run.frozen_dtype", "nf4 is taken for either", choices=("fp4", "nf4")),
        idle("bnb_4bit_compute_dtype", str, "products are of the type of --mixed_precision, there as here"),
        idle("bnb_4bit_use_double_quant", False, "scales of blocks are kept as they are"),
        idle("bnb_4bit_quant_storage", str, _AS_IT_IS),
        idle("llm_int8_threshold", 6.0, _AS_IT_IS),
        idle("llm_int8_skip_modules", list, _AS_IT_IS),
        idle("llm_int8_enable_fp32_cpu_offload", False, _AS_IT_IS),
        idle("llm_int8_has_fp16_weight", False, _AS_IT_IS),
        idle("quant_method", str, "of bitsandbytes, there as here"),
    ),
)
NO_FP8 = refused("do_fp8_training", False,
    "products of eight-bit floats are not computed here; leave it out. run.frozen_dtype=int8 before the double dash "
    "saves as much memory")  # fmt: skip
_RATIOS = ((1, 1), (4, 5), (5, 4), (2, 3), (3, 2), (3, 4), (4, 3), (9, 16), (16, 9), (1, 2), (2, 1))
"""Width and height of the shapes that the scripts take by themselves."""


def length(tokens: int, to: str) -> Row:
    """The row of how much of a caption is read."""
    return row("max_sequence_length", tokens, to, "tokens of a caption that the large text encoder reads", least=2)


def density(scheme: str) -> tuple[Row, ...]:
    """The rows of which levels are trained. scheme: the default."""
    schemes = tuple(one for one in _SCHEMES if one != "none" or scheme == "none")
    return (
        row("weighting_scheme", scheme,
            "objective.flow.density objective.weighting objective.flow.grid objective.flow.shift",
            "how σ is drawn from the scheduler's table, and the weight of the loss", choices=schemes),
        row("logit_mean", 0.0, "objective.flow.mean", "of logit_normal; more is less noise there, so that its sign "
            "changes"),
        row("logit_std", 1.0, "objective.flow.std", "of logit_normal", above=0),
        row("mode_scale", 1.29, "objective.flow.mode_scale", "of mode"),
    )  # fmt: skip


def data_rows(*classes: Row, between: Sequence[Row] = ()) -> tuple[Row, ...]:
    """The rows of pictures. classes: of class pictures. between: of where they are cut."""
    return (
        *_dreambooth.TABLE,
        *classes,
        with_default("resolution", 512),
        *between,
        *rows("center_crop", "random_flip"),
        with_default("train_batch_size", 4),
        *rows("dataloader_num_workers"),
        with_default("num_train_epochs", 1),
        *rows("max_train_steps", "gradient_accumulation_steps", "gradient_checkpointing"),
    )


def showing(*final: Row) -> tuple[Row, ...]:
    """The rows of previews and curves."""
    return (*_dreambooth.drawn(with_default("validation_epochs", 50)), *final, *_dreambooth.SHOWING)


def compute(draft: Draft, script: Script) -> None:
    """What all of them decide by more than one flag."""
    _dreambooth.pictures(draft)
    if draft.text("dataset_name") and draft.text("caption_column"):
        draft.note("caption_column", _EMPTY)
    _dreambooth.compute(draft, script.project, script.family, script.texts, CELL)
    draft.lay("random_flip", "max_sequence_length")
    draft.set("data.resize", "bilinear", "resolution")
    trained = script.texts if draft.values.get("train_text_encoder") else ()
    draft.set("data.cache.text", not trained, *(("train_text_encoder",) if script.texts else ()))
    _dreambooth.optimizer(draft, trained)
    if script.remainder:
        draft.set("data.remainder", script.remainder, "train_batch_size")
    _placed_once(draft)
    _levels(draft)
    _previews(draft)
    if (
        draft.values["with_prior_preservation"]
        and not script.parts_weights
        and draft.text("weighting_scheme") in _LATER
    ):
        what = "each picture has the weight of its own level; there, class pictures have that of the subject's"
        draft.note("weighting_scheme", what)
    if script.remainder and draft.values["with_prior_preservation"]:
        what = "all class pictures are trained, and an epoch has as many pairs as the larger folder has pictures"
        draft.note("with_prior_preservation", f"{what}; there, as many as the subject has, and no more of the class")


def stable_three(draft: Draft) -> None:
    """What both scripts of SD3 decide besides."""
    draft.set("objective.flow.preconditioned", bool(draft.values["precondition_outputs"]), "precondition_outputs")
    draft.set("run.vae_dtype", "fp32", "mixed_precision")


def adapter(draft: Draft, script: Script, layers: Sequence[str], outer: Collection[str]) -> None:
    """What is trained: a LoRA of these layers. outer: what lies in the denoiser's outermost level."""
    trained = script.texts if draft.values.get("train_text_encoder") else ()
    if draft.fits("rank"):
        rank = draft.whole("rank")
        draft.put({"model.adapter.kind": "lora", "model.adapter.rank": rank, "model.adapter.init": "gaussian"}, "rank")
    if "lora_alpha" in draft.rows and draft.fits("lora_alpha"):
        draft.set("model.adapter.alpha", float(draft.whole("lora_alpha")), "lora_alpha")
    targets = [f"denoiser/{_pattern(name, outer)}" for name in layers]
    targets += [f"{part}/attention" for part in trained]
    draft.set("model.adapter.targets", targets, "lora_layers", *(("train_text_encoder",) if trained else ()))
    draft.set("model.train", ["denoiser", *trained], *(("train_text_encoder",) if script.texts else ("rank",)))
    draft.set("run.export.adapter", "diffusers", "output_dir")
    precision = draft.settings.get("run", {}).get("precision", "fp32")
    kept = "fp32" if draft.values["upcast_before_saving"] else precision
    draft.set("run.export.dtype", kept, "upcast_before_saving", "mixed_precision")
    if precision == "bf16":
        what = "the adapter is kept in float32; there, in bfloat16, which rounds most small updates away"
        draft.note("mixed_precision", what)


def layers_of(draft: Draft, usual: Sequence[str]) -> list[str]:
    """The layers that the line names, or the script's own."""
    text = draft.values["lora_layers"]
    if text is None:
        return list(usual)
    names = [name.strip() for name in str(text).split(",") if name.strip()]
    if not names:
        draft.refuse("lora_layers", "names no layer", "write them like to_k,to_q,to_v,to_out.0", "E1017")
    return names


def buckets(draft: Draft) -> None:
    """Shapes of pictures, where they are more than the square."""
    text, side = draft.text("aspect_ratio_buckets"), draft.whole("resolution")
    if not draft.values["use_aspect_ratio_buckets"]:
        if text:
            what = "wants --use_aspect_ratio_buckets beside it, there as here"
            draft.refuse("aspect_ratio_buckets", what, code="E1017")
        return
    if draft.values["with_prior_preservation"]:
        what = "class pictures stand beside the subject's in one size; leave out --with_prior_preservation or this"
        draft.refuse("use_aspect_ratio_buckets", what)
    sizes = _sizes(draft, text) if text else _ladder(side)
    draft.put({"data.buckets.shape": "list", "data.buckets.sizes": sizes},
              *(("aspect_ratio_buckets",) if text else ("use_aspect_ratio_buckets", "resolution")))  # fmt: skip
    if not text:
        what = "pictures smaller than --resolution are enlarged; there, each has a size of its own"
        draft.note("use_aspect_ratio_buckets", what)


def low_bit(draft: Draft) -> None:
    """How the frozen model is held, by the file that the line names for bitsandbytes."""
    if not draft.values["bnb_quantization_config_path"]:
        return
    four, eight = (draft.values[f"{_BNB}load_in_{bits}bit"] for bits in (4, 8))
    if bool(four) == bool(eight):
        what = "asks for both" if four else "asks for neither"
        draft.refuse("bnb_quantization_config_path", f"{what} of load_in_4bit and load_in_8bit", "write one of them")
    draft.set("run.frozen_dtype", "nf4" if four else "int8", "bnb_quantization_config_path")
    if four and draft.text(f"{_BNB}bnb_4bit_quant_type") == "fp4":
        draft.note(f"{_BNB}bnb_4bit_quant_type", "nf4 is taken, whose levels lie where weights do; there, fp4")
    draft.note("bnb_quantization_config_path", "the text encoder, which encodes before the training, is held in as few "
               "bits; there, it is not")  # fmt: skip


def caption_dropout(draft: Draft) -> None:
    """How often a caption is left out; those of class pictures never are."""
    if draft.number("caption_dropout") > 1:
        draft.refuse("caption_dropout", "is a chance, 0 to 1", code="E1017")
    draft.lay("caption_dropout")
    if draft.values["with_prior_preservation"]:
        draft.set("data.prior.dropout", False, "caption_dropout")


def _sizes(draft: Draft, text: str) -> list[list[int]]:
    """Height and width of each of `h1,w1;h2,w2;…`."""
    try:
        sizes = [[int(side) for side in pair.split(",")] for pair in text.strip().split(";")]
    except ValueError:
        sizes = [[]]
    if any(len(pair) != 2 or min(pair) < CELL or any(side % CELL for side in pair) for pair in sizes):
        what = f"has a size that is not two multiples of {CELL}: height, comma, width"
        draft.refuse("aspect_ratio_buckets", what, "write them like 1024,1024;768,1360", "E1017")
    return sizes


def _ladder(side: int) -> list[list[int]]:
    """Height and width of the scripts' own shapes of about side² pixels."""
    sizes = []
    for wide, high in _RATIOS:
        height = (side * side / (wide / high)) ** 0.5
        pair = [max(CELL, round(length / CELL) * CELL) for length in (height, height * (wide / high))]
        sizes += [pair] if pair not in sizes else []
    return sizes


def _pattern(name: str, outer: Collection[str]) -> str:
    """A layer by the end of its path, as peft reads it: from the outermost level on, or behind any dot."""
    return name if name.partition(".")[0] in outer else f"*.{name}"


def _placed_once(draft: Draft) -> None:
    """Whether pictures are encoded ahead, and how often each is placed."""
    keeps = [flag for flag in ("cache_latents", "offload") if flag in draft.rows]
    is_cached = any(draft.values[flag] for flag in keeps)
    is_drawn = not draft.values["center_crop"] or bool(draft.values["random_flip"])
    if keeps:
        draft.set("data.cache.latents", is_cached, *keeps)
        draft.set("data.cache.crops", draft.whole("repeats") if is_cached and is_drawn else 1, *keeps, "repeats")
    if is_drawn and not is_cached:
        flag = "random_flip" if draft.values["random_flip"] else "center_crop"
        draft.note(flag, "places and mirrors are drawn at each visit; there, once for the whole run")


def _levels(draft: Draft) -> None:
    """Which levels of noise are trained, and how they weigh."""
    scheme = draft.text("weighting_scheme")
    kind = {"logit_normal": "logit-normal", "mode": "mode"}.get(scheme, "uniform")
    weighting = scheme.replace("_", "-") if scheme in _LATER else "prediction"
    draft.put({"objective.flow.density": kind, "objective.weighting": weighting}, "weighting_scheme")
    draft.put({"objective.flow.grid": "table", "objective.flow.shift": "table"}, "weighting_scheme")
    for flag, own in _OWN.items():
        if scheme != own and flag in draft.named:
            draft.note(flag, f"without --weighting_scheme={own} it has no effect, there as here")
    low, high = _MODE_SCALES
    if scheme == "logit_normal":
        draft.set("objective.flow.mean", 0.0 - draft.number("logit_mean"), "logit_mean")
        draft.lay("logit_std")
    elif scheme == "mode":
        if not low <= draft.number("mode_scale") <= high:
            draft.refuse("mode_scale", f"must lie between {low:g} and {high:g}, beyond which σ leaves its range",
                         code="E1017")  # fmt: skip
        draft.lay("mode_scale")


def _previews(draft: Draft) -> None:
    """What is drawn, with the steps and the guidance of the model's own pipeline."""
    prompt, last = draft.text("validation_prompt"), str(draft.values.get("final_validation_prompt") or "")
    count, epochs = draft.whole("num_validation_images"), draft.whole("validation_epochs")
    draft.set("run.preview.every", None, "validation_prompt")
    if last and (prompt or draft.values["skip_final_inference"]):
        why = "--validation_prompt" if prompt else "--skip_final_inference"
        draft.note("final_validation_prompt", f"{why} counts")
        last = ""
    if prompt and draft.fits("num_validation_images") and draft.fits("validation_epochs"):
        draft.set("sample.prompts", [prompt] * count, "validation_prompt")
        draft.set("run.preview.every", f"{epochs} epochs", "validation_epochs")
        draft.note("validation_epochs", f"previews at step 0, after every {epochs} epochs and at the end")
    elif last and draft.fits("num_validation_images"):
        steps = draft.values["max_train_steps"]
        every = f"{steps} steps" if steps else f"{draft.whole('num_train_epochs')} epochs"
        draft.set("sample.prompts", [last] * count, "final_validation_prompt")
        draft.set("run.preview.every", every, "final_validation_prompt")
    elif not prompt:
        for flag in ("validation_epochs", "num_validation_images"):
            if flag in draft.named:
                draft.note(flag, "without --validation_prompt nothing is drawn")
