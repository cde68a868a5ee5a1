"""What the DreamBooth scripts of diffusers have in common: `train_dreambooth.py`, `train_dreambooth_lora.py`,
`train_dreambooth_lora_sdxl.py` and those of `flow/`, of the head of August 2026."""

from __future__ import annotations

from dataclasses import replace

from mezzotint.compat.diffusers_scripts.dialect import _common
from mezzotint.compat.diffusers_scripts.dialect._common import rows, with_default
from mezzotint.compat.kit.dialect import Draft, Row, idle, refused, row

DREAMBOOTH, DREAMBOOTH_LORA = "train_dreambooth.py", "train_dreambooth_lora.py"
DREAMBOOTH_LORA_XL = "train_dreambooth_lora_sdxl.py"
_IF = "it is for the upscaler of DeepFloyd IF, which is not supported; leave it out"
_TOKENS = "Stable Diffusion's text encoder reads 77 tokens without a mask; leave it out"

MODEL = (
    *rows("pretrained_model_name_or_path", "revision", "variant"),
    refused("tokenizer_name", str, "another tokenizer than the model's; put it into the model's folder"),
)  # fmt: skip
INSTANCE = (
    row("instance_data_dir", str, "data.path data.format", "the folder of the subject's pictures", required=True),
    row("instance_prompt", str, "data.captions.trigger data.captions.template", "the caption of each of them",
        required=True),
)  # fmt: skip
TABLE = (
    row("dataset_name", str, "data.path data.format", "a folder, or a hub id in the local cache, instead of "
        "instance_data_dir"),
    *rows("dataset_config_name"),
    replace(INSTANCE[0], required=False),
    *rows("cache_dir", "image_column"),
    row("caption_column", str, "data.columns.caption", "of dataset_name: captions instead of instance_prompt"),
    row("repeats", 1, "data.repeats", "how often an epoch visits each picture of the subject", above=0),
    INSTANCE[1],
)  # fmt: skip
"""Of scripts that take a data set in the place of a folder."""
CLASS = (
    row("class_data_dir", str, "data.prior.path", "the folder of class pictures"),
    row("class_prompt", str, "data.prior.class_prompt", "the caption of each of them, and what missing ones are of"),
    row("with_prior_preservation", False, "data.prior.balance data.batch_size",
        "as many class pictures as the subject's in each batch, beside them", on="pairs", off="visits"),
    row("prior_loss_weight", 1.0, "data.prior.weight", "of the class pictures' mean loss"),
    row("num_class_images", 100, "data.prior.num_class_images", "missing ones are drawn by the model before training",
        above=0),
    row("sample_batch_size", 4, "sample.batch_size", "drawn at once", above=0),
    idle("prior_generation_precision", str, "class pictures are drawn in the types in which the run computes",
        choices=("no", "fp32", "fp16", "bf16")),
)  # fmt: skip
DATA = (
    *INSTANCE,
    *CLASS,
    with_default("resolution", 512),
    *rows("center_crop"),
    with_default("train_batch_size", 4),
    *rows("dataloader_num_workers"),
)  # fmt: skip
UPDATE = (
    *rows("learning_rate", "scale_lr", "lr_scheduler", "lr_warmup_steps"),
    row("lr_num_cycles", 1, "optim.schedule.cycles", "of cosine_with_restarts", above=0),
    row("lr_power", 1.0, "optim.schedule.power", "of polynomial", above=0),
    *rows("use_8bit_adam", "adam_beta1", "adam_beta2", "adam_weight_decay", "adam_epsilon", "max_grad_norm"),
)  # fmt: skip
_ALWAYS = "is on there whatever is written, since its parser takes every word for True"
PRODIGY = (
    row("optimizer", "AdamW", "optim.optimizer.kind", "AdamW, or Prodigy, which needs the extra optimizers",
        choices=("AdamW", "adamw", "Prodigy", "prodigy")),
    row("prodigy_beta3", float, "optim.optimizer.d_beta", "with Prodigy"),
    idle("prodigy_decouple", True, f"decoupled weight decay {_ALWAYS}"),
    idle("prodigy_use_bias_correction", True, f"it {_ALWAYS}"),
    idle("prodigy_safeguard_warmup", True, f"it {_ALWAYS}"),
)  # fmt: skip
OF_TEXT = (
    row("text_encoder_lr", 5e-6, "optim.part_lr", "of the text encoders; with Prodigy learning_rate counts", least=0),
    row("adam_weight_decay_text_encoder", 1e-3, "optim.part_optimizer", "of the text encoders", least=0),
)
TEXT = (
    row("train_text_encoder", False, "model.train", "the text encoder is trained, too"),
    row("pre_compute_text_embeddings", False, "data.cache.text", "captions are encoded once"),
    refused("tokenizer_max_length", int, _TOKENS),
    refused("text_encoder_use_attention_mask", False, _TOKENS),
)  # fmt: skip
PLAIN_RUN = rows(
    "seed", "mixed_precision", "allow_tf32", "enable_xformers_memory_efficient_attention", "checkpointing_steps",
    "checkpoints_total_limit", "resume_from_checkpoint", "local_rank",
)  # fmt: skip
RUN = (
    *PLAIN_RUN,
    refused("validation_images", list, _IF),
    refused("class_labels_conditioning", str, _IF),
)  # fmt: skip
SHOWING = rows("report_to", "logging_dir", "push_to_hub", "hub_token", "hub_model_id")


def drawn(*when: Row) -> tuple[Row, ...]:
    """The rows of previews. when: how often they are drawn."""
    return (
        row("validation_prompt", str, "sample.prompts run.preview.every", "drawn during the run"),
        row("num_validation_images", 4, "sample.prompts", "so many pictures of it", above=0),
        *when,
    )


def compute(
    draft: Draft, project: str, family: str = "sd", texts: tuple[str, ...] = ("text_encoder",), cell: int = 8
) -> None:
    """What all scripts decide by more than one flag, but for the subject's pictures. project: the script's name for
    itself at its trackers. texts: text encoders that it may train. cell: pixels of which sides are multiples."""
    _common.model(draft, family)
    if "train_text_encoder" in draft.rows:
        trained = texts if draft.values["train_text_encoder"] else ()
        draft.set("model.train", ["denoiser", *trained], "train_text_encoder")
    _common.placed(draft, cell)
    draft.lay("center_crop")
    _class_pictures(draft)
    _batches(draft)
    _common.rate(draft)
    draft.lay("lr_num_cycles", "lr_power")
    _common.update(draft)
    draft.set("optim.ema.rule", "none", "output_dir")
    _common.precision(draft)
    _common.saving(draft)
    _common.tracking(draft, project)
    _common.quirks(draft)


def stable(draft: Draft, project: str) -> None:
    """What the scripts of Stable Diffusion decide by more than one flag."""
    folder = draft.text("instance_data_dir")
    draft.put({"data.path": [folder], "data.format": "image-folder"}, "instance_data_dir")
    one_prompt(draft)
    compute(draft, project)
    draft.set("data.flip", 0.0, "center_crop")
    if draft.values["pre_compute_text_embeddings"] and draft.values["train_text_encoder"]:
        draft.refuse("train_text_encoder", "what is encoded once cannot be trained", "leave one of the two out")
    draft.lay("pre_compute_text_embeddings")


def one_prompt(draft: Draft) -> None:
    """Every picture of the subject has the same caption."""
    prompt = draft.text("instance_prompt")
    draft.put({"data.captions.trigger": [prompt], "data.captions.template": ["{trigger}"]}, "instance_prompt")


def pictures(draft: Draft) -> None:
    """Where the subject's pictures and their captions lie: a folder with one prompt, or a data set."""
    name, folder, column = (draft.text(flag) for flag in ("dataset_name", "instance_data_dir", "caption_column"))
    if bool(name) == bool(folder):
        what = "and --dataset_name are both given" if name else "is not given, nor --dataset_name"
        draft.refuse("instance_data_dir", f"{what}; the script takes one of them", code="E1017")
    kind = "metadata" if name else "image-folder"
    draft.put({"data.path": [name or folder], "data.format": kind}, "dataset_name" if name else "instance_data_dir")
    draft.set("data.columns.image", draft.text("image_column") if name else "image", "image_column")
    if name:
        draft.lay("dataset_config_name", "cache_dir")
    for flag in ("dataset_config_name", "cache_dir", "image_column", "caption_column"):
        if flag in draft.named and not name:
            draft.note(flag, "without --dataset_name it has no effect, there as here")
    if name and column:
        draft.set("data.columns.caption", column, "caption_column")
        draft.note("instance_prompt", "--caption_column counts")
    else:
        one_prompt(draft)
    if draft.fits("repeats"):
        draft.set("data.repeats", [float(draft.whole("repeats"))], "repeats")


def optimizer(draft: Draft, texts: tuple[str, ...]) -> None:
    """The optimizer; the text encoders' have a rate and a decay of their own."""
    is_prodigy = draft.text("optimizer").lower() == "prodigy"
    if is_prodigy:
        draft.put({"optim.optimizer.kind": "prodigy", "optim.optimizer.d_beta": draft.values["prodigy_beta3"]},
                  "optimizer", "prodigy_beta3")  # fmt: skip
        draft.put({"optim.optimizer.bias_correction": True, "optim.optimizer.safeguard_warmup": True}, "optimizer")
        if draft.values["use_8bit_adam"]:
            draft.note("use_8bit_adam", "without AdamW it has no effect, there as here")
    elif "prodigy_beta3" in draft.named:
        draft.note("prodigy_beta3", "without --optimizer=prodigy it has no effect, there as here")
    if not texts:
        for flag in ("text_encoder_lr", "adam_weight_decay_text_encoder"):
            if flag in draft.named and "train_text_encoder" in draft.rows:
                draft.note(flag, "without --train_text_encoder it has no effect, there as here")
        return
    own = dict(draft.settings["optim"]["optimizer"]) | {"weight_decay": draft.number("adam_weight_decay_text_encoder")}
    rate = draft.number("text_encoder_lr") or draft.number("learning_rate")
    for part in texts if draft.fits("adam_weight_decay_text_encoder") else ():
        values = {f"optim.part_optimizer.{part}.{name}": value for name, value in own.items()}
        draft.put(values, "adam_weight_decay_text_encoder")
    for part in texts if draft.fits("text_encoder_lr") and not is_prodigy else ():
        draft.set(f"optim.part_lr.{part}", rate, "text_encoder_lr")


def min_snr(draft: Draft) -> None:
    """The weight of timesteps, where there are no class pictures."""
    draft.lay("snr_gamma")
    if draft.values["snr_gamma"] is not None and draft.values["with_prior_preservation"]:
        what = "weighs the subject's pictures alone there, not those of its class; here it would weigh both"
        draft.refuse("snr_gamma", what, "leave one of the two out")
    elif draft.values["snr_gamma"] is not None:
        what = "of a v-prediction model min(γ, snr) / (snr + 1), as the paper has it; there, min(γ, snr) / snr + 1"
        draft.note("snr_gamma", what)


def _class_pictures(draft: Draft) -> None:
    flags = ("class_data_dir", "class_prompt")
    if not draft.values["with_prior_preservation"]:
        for flag in (*flags, "prior_loss_weight", "num_class_images"):
            if flag in draft.named:
                draft.note(flag, "without --with_prior_preservation it has no effect, there as here")
        return
    for flag in flags:
        if not draft.text(flag):
            draft.refuse(flag, "is not given; --with_prior_preservation needs it", code="E1017")
    draft.set("data.prior.path", [draft.text("class_data_dir")], "class_data_dir")
    draft.set("data.prior.class_prompt", draft.text("class_prompt"), "class_prompt")
    draft.set("data.prior.balance", "pairs", "with_prior_preservation")
    draft.set("data.prior.weight", draft.number("prior_loss_weight"), "prior_loss_weight")
    if draft.number("prior_loss_weight") < 0:
        draft.refuse("prior_loss_weight", "must be 0 or more", code="E1017")
    draft.lay("num_class_images", "sample_batch_size")


def _batches(draft: Draft) -> None:
    """There, a batch has so many pictures of the subject, and as many of the class besides."""
    _common.batches(draft)
    if draft.values["with_prior_preservation"]:
        both = 2 * draft.whole("train_batch_size") * draft.launched.processes
        draft.set("data.batch_size", both, "with_prior_preservation", "train_batch_size")
        draft.note("train_batch_size", f"and as many class pictures: a batch of {both}")


def previews(draft: Draft, every: str, flag: str, guidance: float = 7.5) -> None:
    """every: `100 steps`. flag: that says it."""
    prompt, count = draft.text("validation_prompt"), draft.whole("num_validation_images")
    if prompt and draft.fits("num_validation_images") and draft.fits(flag):
        draft.set("sample.prompts", [prompt] * count, "validation_prompt")
        draft.set("run.preview.every", every, flag)
    else:
        draft.set("run.preview.every", None, "validation_prompt")
        for one in (flag, "num_validation_images"):
            if one in draft.named and not prompt:
                draft.note(one, "without --validation_prompt nothing is drawn")
    draft.put({"sample.steps": 25, "sample.guidance": guidance}, "validation_prompt")
