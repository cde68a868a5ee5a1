"""Data files in the wheel: recipes, models and their configurations, data sets, tokenizers, loss weights, MindONE's
configurations.

From outside: the folders below. Imports and computes nothing.
"""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).resolve().parent

MODELS = ASSETS / "models"
"""Shipped models, a folder each; `model.path` may be its name."""

ADAPTER_READERS = ASSETS / "adapter_readers.toml"
"""Names of layers that programs accept in adapter files."""

TRAINER_LAYOUTS = ASSETS / "trainer_layouts.toml"
"""How other trainers name the tensors of their adapters."""

LOSS_WEIGHTS = ASSETS / "loss_weights"
"""Loss weights by noise level, a file of each table; `objective.weight_table` may be its name."""

DATA = ASSETS / "data"
"""Shipped data sets, a folder each; `data.path` may be its name."""
