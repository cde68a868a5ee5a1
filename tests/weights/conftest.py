"""Shared fixtures of the tests of weights."""

from __future__ import annotations

from support import sd_folder

family, copy = sd_folder.family, sd_folder.copy
