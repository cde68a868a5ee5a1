"""Timestep bias of diffusers' SDXL script and MindONE's: some timesteps are drawn more often than others. Both have the
same five flags and compute the same probabilities from them. The end of a range is exclusive, contrary to their help
texts.
"""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Draft, mapped

ROWS = (
    mapped("timestep_bias_strategy", "none", "objective.timestep_bias.strategy",
        "draws earlier timesteps (fine detail), later ones (composition), or a range more often",
        choices=("none", "earlier", "later", "range")),
    mapped("timestep_bias_multiplier", 1.0, "objective.timestep_bias.multiplier", "how many times as often"),
    mapped("timestep_bias_begin", 0, "objective.timestep_bias.begin", "of range: the first"),
    mapped("timestep_bias_end", 1000, "objective.timestep_bias.end", "of range: the end, exclusive"),
    mapped("timestep_bias_portion", 0.25, "objective.timestep_bias.portion",
        "of earlier and later: the share of timesteps"),
)  # fmt: skip

_USED = {
    "none": (),
    "earlier": ("multiplier", "portion"),
    "later": ("multiplier", "portion"),
    "range": ("multiplier", "begin", "end"),
}


def notes(draft: Draft) -> None:
    """Adds notes about flags that the strategy does not use."""
    strategy = draft.text("timestep_bias_strategy") or "none"
    for word in ("multiplier", "begin", "end", "portion"):
        flag = f"timestep_bias_{word}"
        if flag not in draft.named or word in _USED[strategy]:
            continue
        if strategy == "none":
            draft.note(flag, "without --timestep_bias_strategy all timesteps are equally likely")
        else:
            draft.note(flag, f"not used with {strategy}")
    if strategy == "range" and "timestep_bias_end" in draft.named:
        draft.note("timestep_bias_end", f"timestep {draft.integer('timestep_bias_end')} itself is not preferred")
