"""Colours of curves: told apart by colour-blind readers, and visible on their ground."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import mezzotint.board

CSS = (Path(mezzotint.board.__file__).parent / "static" / "page.css").read_text("utf-8")
THEMES = re.findall(r"--panel: (#\w{6});.*?((?:--s\d: #\w{6}; ?)+)", CSS, re.DOTALL)
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])
WHITE = np.array([0.95047, 1, 1.08883])
SIGHTS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""Machado, Oliveira and Fernandes 2009, severity 1, for linear RGB."""


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    x, y, z = np.cbrt(XYZ @ rgb.clip(1e-3, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS)
def test_curves_differ_for_every_sight(sight: str) -> None:
    assert len(THEMES) == 3, "light, dark, and dark of the system"
    for panel, text in THEMES:
        colours = re.findall(r"#\w{6}", text)
        assert len(set(colours)) == 8
        seen = [lab(np.array(SIGHTS[sight]) @ linear(colour)) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20
        ground, shades = XYZ[1] @ linear(panel), [XYZ[1] @ linear(colour) for colour in colours]
        assert all((max(ground, one) + 0.05) / (min(ground, one) + 0.05) > 3 for one in shades)
