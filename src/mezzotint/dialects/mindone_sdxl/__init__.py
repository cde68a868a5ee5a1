"""MindONE's lines and YAML files for SDXL as recipes: `DIALECT`."""

from mezzotint.dialects.mindone_sdxl._dialect import DIALECT

__all__ = ["DIALECT"]
