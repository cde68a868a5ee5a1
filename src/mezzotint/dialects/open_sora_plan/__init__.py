"""Open-Sora-Plan's lines as recipes: `DIALECT`."""

from mezzotint.dialects.open_sora_plan._dialect import DIALECT

__all__ = ["DIALECT"]
