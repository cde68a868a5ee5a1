"""musubi-tuner's options: a row for each option of the training scripts, and which scripts have it."""

from __future__ import annotations

from mezzotint.compat.musubi import _rows_model as of_model
from mezzotint.compat.musubi import _rows_train as of_training
from mezzotint.compat.musubi._scripts import TrainingScript

_GROUPS = (
    ("all", of_model.MODEL),
    ("adapter", of_model.ADAPTER),
    ("all", of_model.METADATA),
    ("qwen-image z-image flux2", of_model.READING),
    ("wan", of_model.WAN),
    ("wan flux", of_model.T5),
    ("flux", of_model.KONTEXT),
    ("qwen-image", of_model.QWEN),
    ("z-image", of_model.Z_IMAGE),
    ("flux2", of_model.FLUX_2),
    ("qwen-image flux2", of_model.VERSION),
    ("weights", of_model.WEIGHTS),
    ("zimage_train", of_model.PATCH),
    ("all", of_model.UPLOADS),
    ("all", of_model.PROCESSES),
    ("all", of_training.DATA),
    ("all", of_training.NOISE),
    ("all", of_training.UPDATE),
    ("all", of_training.RUN),
)
"""(selector, options): `TrainingScript.is_one_of` tells which scripts have them."""

ROWS = tuple(row for _, rows in _GROUPS for row in rows)
"""All options."""

SCRIPTS_OF = {row.flag: selector for selector, rows in _GROUPS for row in rows}
"""Selectors of options, by flag."""


def has_option(script: TrainingScript, flag: str) -> bool:
    """Whether a script has an option."""
    return script.is_one_of(SCRIPTS_OF[flag])
