"""What the textual inversion scripts of diffusers have in common: `textual_inversion.py` and
`textual_inversion_sdxl.py`, of the head of August 2026. The sentences are those of Gal et al. 2022 (arXiv:2208.01618),
whose code has them under the MIT licence (`LICENSES/textual_inversion.txt`).
"""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts.dialect import _common, _dreambooth
from mezzotint.compat.diffusers_scripts.dialect._common import rows, with_default
from mezzotint.compat.kit.dialect import Draft, mapped, refused, row

INVERSION, INVERSION_XL = "textual_inversion.py", "textual_inversion_sdxl.py"

_OBJECT = (
    "a photo of a {}", "a rendering of a {}", "a cropped photo of the {}", "the photo of a {}",
    "a photo of a clean {}", "a photo of a dirty {}", "a dark photo of the {}", "a photo of my {}",
    "a photo of the cool {}", "a close-up photo of a {}", "a bright photo of the {}", "a cropped photo of a {}",
    "a photo of the {}", "a good photo of the {}", "a photo of one {}", "a close-up photo of the {}",
    "a rendition of the {}", "a photo of the clean {}", "a rendition of a {}", "a photo of a nice {}",
    "a good photo of a {}", "a photo of the nice {}", "a photo of the small {}", "a photo of the weird {}",
    "a photo of the large {}", "a photo of a cool {}", "a photo of a small {}",
)  # fmt: skip
_STYLE = tuple(
    f"{words} in the style of {{}}"
    for words in (
        "a painting", "a rendering", "a cropped painting", "the painting", "a clean painting", "a dirty painting",
        "a dark painting", "a picture", "a cool painting", "a close-up painting", "a bright painting",
        "a cropped painting", "a good painting", "a close-up painting", "a rendition", "a nice painting",
        "a small painting", "a weird painting", "a large painting",
    )
)  # fmt: skip
SENTENCES = {"object": _OBJECT, "style": _STYLE}
"""Captions by `learnable_property`; one is drawn at each visit."""

WORD = (
    row("num_vectors", 1, "model.tokens.vectors", "tokens that the word stands for", above=0),
    row("placeholder_token", str, "model.tokens.words data.captions.trigger", "the new word", required=True),
    row("initializer_token", str, "model.tokens.words", "the word that it begins as", required=True),
    row("learnable_property", "object", "data.captions.template data.captions.wildcards",
        "the sentences around the word, 27 for an object, 19 for a style", choices=tuple(SENTENCES)),
)  # fmt: skip
DATA = (
    row("train_data_dir", str, "data.path data.format", "the folder of pictures", required=True),
    row("repeats", 100, "data.repeats", "how often an epoch visits each picture", above=0),
    with_default("resolution", 512),
    row("center_crop", False, "data.crop", "the middle square; without it pictures are squeezed into a square",
        on="center", off="stretch"),
    *rows("train_batch_size", "dataloader_num_workers"),
)  # fmt: skip
UPDATE = (
    *rows("num_train_epochs"),
    with_default("max_train_steps", 5000),
    *rows("gradient_accumulation_steps", "gradient_checkpointing"),
    *rows("learning_rate", "scale_lr", "lr_scheduler", "lr_warmup_steps"),
    row("lr_num_cycles", 1, "optim.schedule.cycles", "of cosine_with_restarts", above=0),
    *rows("adam_beta1", "adam_beta2", "adam_weight_decay", "adam_epsilon"),
)  # fmt: skip
RUN = (
    mapped("save_steps", 500, "run.export.every", "steps between files of the word, in exports/", above=0),
    refused("save_as_full_pipeline", False, "the word's files are written, which load_textual_inversion lays over the "
        "model; the model itself would be copied as it is"),
    with_default("output_dir", "text-inversion-model"),
    *rows("seed"),
    with_default("mixed_precision", "no"),
    *rows("allow_tf32", "enable_xformers_memory_efficient_attention", "checkpointing_steps", "checkpoints_total_limit",
          "resume_from_checkpoint", "local_rank"),
    *_dreambooth.drawn(
        row("validation_steps", 100, "run.preview.every", "steps between previews", above=0),
    ),
    *_dreambooth.SHOWING,
)  # fmt: skip


def compute(draft: Draft, family: str, project: str) -> None:
    """What both scripts decide by more than one flag, but for previews."""
    _common.model(draft, family)
    draft.set("model.train", ["tokens"], "placeholder_token")
    _word(draft)
    draft.put({"data.path": [draft.text("train_data_dir")], "data.format": "image-folder"}, "train_data_dir")
    _common.placed(draft)
    draft.lay("center_crop")
    draft.put({"data.flip": 0.5, "data.resize": "bicubic"}, "resolution")
    if draft.fits("repeats"):
        draft.set("data.repeats", [float(draft.whole("repeats"))], "repeats")
    _common.batches(draft)
    _common.rate(draft)
    draft.lay("lr_num_cycles")
    if "use_8bit_adam" in draft.rows:
        draft.lay("use_8bit_adam")
    else:
        draft.set("optim.optimizer.kind", "adamw", "adam_beta1")
    draft.set("optim.optimizer.betas", [draft.number("adam_beta1"), draft.number("adam_beta2")], "adam_beta1")
    draft.put({"optim.clip.norm": None, "optim.ema.rule": "none"}, "output_dir")
    _common.precision(draft)
    _common.saving(draft)
    if draft.fits("save_steps"):
        draft.set("run.export.every", f"{draft.whole('save_steps')} steps", "save_steps")
    _common.tracking(draft, project)
    _common.quirks(draft)
    if draft.number("adam_weight_decay"):
        what = "of the new word's rows alone; there it moves the whole table, whose other rows are put back afterwards"
        draft.note("adam_weight_decay", what)


def _word(draft: Draft) -> None:
    word, begins = draft.text("placeholder_token"), draft.text("initializer_token")
    draft.lay("num_vectors")
    draft.set("model.tokens.words", {word: begins}, "placeholder_token", "initializer_token")
    draft.set("data.captions.trigger", [word], "placeholder_token")
    sentences = SENTENCES.get(draft.text("learnable_property"), _OBJECT)
    template = f"{{{'|'.join(one.format('{trigger}') for one in sentences)}}}"
    values = {"data.captions.template": [template], "data.captions.wildcards": True}
    draft.put(values, "learnable_property")
    unfit = sorted({*word} & {*"{|}"})
    if unfit:
        draft.refuse("placeholder_token", f"must be without {' '.join(unfit)}, got {word}", code="E1017")
