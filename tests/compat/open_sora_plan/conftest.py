"""Fixtures of several tests of Open-Sora-Plan."""

from __future__ import annotations

import latte_folder

released = latte_folder.released
