"""What travels in the wheel: recipes, models and their configurations, data sets, tokenizers, MindONE's own files.

From outside: the folders below. Nothing here is imported from anywhere else, and nothing is computed.
"""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).resolve().parent

MODELS = ASSETS / "models"
"""Models that ship, a folder each; `model.path` may be its name."""

ADAPTER_READERS = ASSETS / "adapter_readers.toml"
"""Names of layers that programs accept in adapter files."""

DATA = ASSETS / "data"
"""Data sets that ship, a folder each; `data.path` may be its name."""
