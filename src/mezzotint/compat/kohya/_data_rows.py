"""Options of data sets, captions, buckets, augmentation and masks, and of sample prompts."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Row

DATA: tuple[Row, ...] = ()
"""Options that describe the data."""

PREVIEWS: tuple[Row, ...] = ()
"""`sample_prompts`, `sample_every_n_steps`, `sample_every_n_epochs`, `sample_at_first`, `sample_sampler`."""

DATA_SCRIPTS: dict[str, str] = {}
"""Selectors (`Script.is_one_of`) of options in these tables that only some scripts have, by flag."""
