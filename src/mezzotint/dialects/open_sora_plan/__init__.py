"""Open-Sora-Plan's lines as recipes: `DIALECT`.

From outside: nothing; the registry finds it by its place.
"""

from mezzotint.dialects.open_sora_plan._dialect import DIALECT

__all__ = ["DIALECT"]
