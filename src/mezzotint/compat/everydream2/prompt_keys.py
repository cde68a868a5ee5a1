"""The keys of EveryDream2's sample_prompts.json and its names for solvers; see `sampling/prompt_file.py`."""

from __future__ import annotations

KEYS = {
    "cfgs": "guidance",
    "generate_pretrain_samples": "at_start",
    "generate_samples_every_n_steps": "every_batches",
    "num_inference_steps": "steps",
    "resolution": "size",
    "scheduler": "solver",
    "show_progress_bars": "",
}

_SOLVERS = {"kdpm2": "dpm2", "dpm++_2s": "dpm++-single"}
_NEAR = {"dpm++_sde": "dpm++-sde"}
"""Solvers that are not available, and their replacements."""


def read_solver(name: str) -> tuple[str, list[str]]:
    """Mezzotint's name of a solver, or the name without `_k`, with notes about differences."""
    plain, notes = name.removesuffix("_k"), []
    if plain in _NEAR:
        notes.append(f"{plain} is not available; {_NEAR[plain]} is used instead")
    if plain != name:
        notes.append(f"{name} uses the timesteps of sample.timestep_spacing")
    return _NEAR.get(plain) or _SOLVERS.get(plain, plain), notes
