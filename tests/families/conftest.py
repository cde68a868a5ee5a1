"""Fixtures of several families' tests."""

from __future__ import annotations

import latte_folder
import sd_folder

released = latte_folder.released
family, copy = sd_folder.family, sd_folder.copy
