"""sd-scripts' options: a row for each option of the training scripts, and which scripts have it."""

from __future__ import annotations

from mezzotint.compat.kohya import _rows_model as of_model
from mezzotint.compat.kohya import _rows_train as of_training
from mezzotint.compat.kohya._data_rows import DATA, DATA_SCRIPTS, PREVIEWS
from mezzotint.compat.kohya._scripts import Script

_GROUPS = (
    ("all", of_model.MODEL),
    ("adapter", of_model.ADAPTER),
    ("embeddings", of_model.TOKENS),
    ("sdxl+adapter sdxl+weights flow", of_model.MEMORY),
    ("sdxl flow", of_model.READING),
    ("flow", of_model.FLOW_MODEL),
    ("flux", of_model.FLUX_MODEL),
    ("sd3", of_model.SD3_MODEL),
    ("adapter flux_train", of_model.CHECKPOINTING),
    ("unet adapter", of_model.VAE_TYPE),
    ("fine_tune sdxl_train sd3_train", of_model.ENCODER_TRAINING),
    ("train_db fine_tune", of_model.ENCODER_RATE),
    ("sdxl_train sd3_train", of_model.ENCODER_RATES),
    ("sd3_train", of_model.SD3_TRAINING),
    ("flux_train", of_model.FLUX_TRAINING),
    ("flux_train sd3_train", of_model.FUSED),
    ("sdxl_train flux_train sd3_train", of_model.FUSED_GROUPS),
    *of_model.ONE_SCRIPT.items(),
    ("all", of_model.UPLOADS),
    ("all", of_model.PROCESSES),
    ("all", of_training.NOISE),
    ("adapter weights", of_training.WEIGHTED_CAPTIONS),
    ("adapter train_db embeddings", of_training.CLASS_IMAGES),
    ("flow", of_training.FLOW_NOISE),
    ("flux", of_training.FLUX_NOISE),
    ("sd3", of_training.SD3_NOISE),
    ("all", of_training.UPDATE),
    ("all", of_training.RUN),
)
"""(selector, options): `Script.is_one_of` tells which scripts have them."""

ROWS = (*(row for _, rows in _GROUPS for row in rows), *DATA, *PREVIEWS)
"""All options."""

SCRIPTS_OF = {row.flag: selector for selector, rows in _GROUPS for row in rows} | DATA_SCRIPTS
"""Selectors of options, by flag."""


def has_option(script: Script, flag: str) -> bool:
    """Whether a script has an option."""
    return script.is_one_of(SCRIPTS_OF.get(flag, "all"))
