"""MindONE's lines and YAML files for SDXL as recipes: `DIALECT`.

From outside: nothing; the registry finds it by its place.
"""

from mezzotint.dialects.mindone_sdxl._dialect import DIALECT

__all__ = ["DIALECT"]
