"""Earlier names of settings and of their values. Recipes with old names are not accepted: the unknown-key error and
`mezzotint explain` report the new name, and `mezzotint migrate` rewrites a recipe. Modules of the group
`mezzotint.settings.renamed` add their own `SETTINGS` and `VALUES`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from mezzotint import registry

FOLDER = "settings/renamed"

SETTINGS: Mapping[str, str] = {
    "data.clips.begin": "data.clips.start",
    "data.clips.stills": "data.clips.images",
    "data.clips.stills_from": "data.clips.images_from",
    "data.clips.stills_kind": "data.clips.images_format",
    "data.clips.stills_order": "data.clips.images_order",
    "data.clips.stills_path": "data.clips.images_path",
    "data.discount": "data.remainder_power",
    "data.holdout.share": "data.holdout.fraction",
    "data.on_broken": "data.on_corrupt",
    "data.rating.share": "data.rating.fraction",
    "data.small": "data.small_images",
    "model.ltx.first_frame": "model.ltx.first_frame_prob",
    "model.wan.first_frame": "model.wan.first_frame_prob",
    "objective.levels": "objective.noise_levels",
    "objective.told": "objective.time_input",
    "optim.schedule.beyond": "optim.schedule.after_decay",
    "optim.schedule.decay_of_run": "optim.schedule.decay_ratio",
    "optim.schedule.warmup_share": "optim.schedule.warmup_ratio",
    "run.device_memory": "run.memory_limit",
    "run.float32_islands": "run.keep_in_fp32",
    "run.gradient_sums": "run.gradient_dtype",
    "run.half": "run.half_precision",
    "run.kernels.graphs": "run.kernels.cuda_graphs",
    "run.kernels.measured": "run.kernels.cudnn_benchmark",
    "run.kernels.whole_batches": "run.kernels.pad_batches",
    "run.longer": "run.extend",
    "run.max_bad_steps": "run.max_nonfinite_steps",
    "run.recompute": "run.gradient_checkpointing",
    "run.recompute.exempt": "run.gradient_checkpointing.skip_first",
    "run.recompute.exempt_last": "run.gradient_checkpointing.skip_last",
    "run.save.parts": "run.save.sharded",
    "run.spikes": "run.spike_factor",
    "run.validation.training_share": "run.validation.training_fraction",
    "sample.file": "sample.prompt_file",
    "sample.framing": "sample.micro_conditioning",
    "sample.spacing": "sample.timestep_spacing",
}
"""Old path → new path of a setting or a section."""

VALUES: Mapping[str, Mapping[Any, Any]] = {
    "data.captions.lines": {"choose": "random"},
    "data.clips.images_order": {"drawn": "random"},
    "data.clips.start": {"anywhere": "random"},
    "data.on_corrupt": {"weight-0": "zero_weight"},
    "data.mask.mean": {"picture": "image"},
    "data.original_size": {"turned": "oriented"},
    "data.verify": {"start": "on_start", "use": "on_first_use"},
    "optim.schedule.after_decay": {"wave": "cosine"},
    "run.export.trained_file": {"none": None},
    "run.half_precision": {"products": "matmuls"},
    "run.weight_dtype": {"alone": "pure"},
}
"""New path of a setting → old value → new value."""


@functools.cache
def settings() -> Mapping[str, str]:
    """SETTINGS, and those that folders of `compat` and packages add."""
    merged: dict[str, str] = {}
    for table in (*_tables("SETTINGS"), SETTINGS):
        merged |= table
    return merged


@functools.cache
def values() -> Mapping[str, Mapping[Any, Any]]:
    """VALUES, and those that folders of `compat` and packages add."""
    merged: dict[str, dict[Any, Any]] = {}
    for table in (*_tables("VALUES"), VALUES):
        for path, names in table.items():
            merged[path] = merged.get(path, {}) | names
    return merged


def _tables(name: str) -> list[Mapping[str, Any]]:
    modules = (registry.find(FOLDER, choice) for choice in registry.names(FOLDER, skip_unimported=True))
    return [getattr(module, name, {}) for module in modules]


def new_path(path: str) -> str | None:
    """The new path of a renamed setting or section; None if it was not renamed."""
    of_part = path.split(".")
    if path.startswith("optim.part_schedule.") and len(of_part) == 4:  # as optim.schedule, for one part of the model
        renamed = settings().get(f"optim.schedule.{of_part[3]}")
        return None if renamed is None else ".".join((*of_part[:3], renamed.rpartition(".")[2]))
    if path in settings():
        return settings()[path]
    section, _, name = path.rpartition(".")
    renamed = new_path(section) if section else None
    return None if renamed is None else f"{renamed}.{name}"


def new_value(path: str, value: Any) -> Any:
    """The new name of a value. path: the new path of its setting."""
    if path.startswith("optim.part_schedule."):
        path = f"optim.schedule.{path.rpartition('.')[2]}"
    try:
        return values().get(path, {}).get(value, value)
    except TypeError:  # a list or a mapping
        return value
