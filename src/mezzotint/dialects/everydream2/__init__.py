"""EveryDream2's lines and files as recipes: `DIALECT`.

From outside: nothing; the registry finds it by its place.
"""

from mezzotint.dialects.everydream2._dialect import DIALECT

__all__ = ["DIALECT"]
