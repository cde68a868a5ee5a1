"""Single files of SDXL and its refiner, as Stability's generative-models names them."""

from __future__ import annotations

from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.layouts import _sdxl, base

_BASE, _REFINER = _sdxl.base_parts(), _sdxl.refiner_parts()

REFINER = KeyMap(
    name="sdxl-refiner",
    family="sdxl",
    parts=_REFINER,
    choose=_sdxl.chooser(_REFINER),
    extras=_sdxl.EXTRAS,
    average=base.average,
    average_start=base.AVERAGE,
)
"""Single files of the refiner."""

LAYOUT = KeyMap(
    name="sdxl",
    family="sdxl",
    parts=_BASE,
    choose=_sdxl.chooser(_BASE),
    extras=_sdxl.EXTRAS,
    average=base.average,
    average_start=base.AVERAGE,
    variants=(REFINER,),
)
"""Single files of the base model."""
