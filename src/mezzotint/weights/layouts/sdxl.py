"""Single files of SDXL and its refiner, as Stability's generative-models names them."""

from __future__ import annotations

from mezzotint.weights.layouts import base, shared

LAYOUT = shared.layout("sdxl", **base.AVERAGES)
"""Single files of the base model; its variant is the refiner's."""
