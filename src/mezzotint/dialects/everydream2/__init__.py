"""EveryDream2's lines and files as recipes: `DIALECT`."""

from mezzotint.dialects.everydream2._dialect import DIALECT

__all__ = ["DIALECT"]
