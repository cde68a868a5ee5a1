"""Timestep bias as diffusers' SDXL script and MindONE's have it: some timesteps are drawn more often than others. Both
read the same five flags and make the same probabilities of them; a range's end is not in the range, whatever their help
says.
"""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Draft, mapped

ROWS = (
    mapped("timestep_bias_strategy", "none", "objective.timestep_bias.strategy",
        "earlier ones (fine detail), later ones (composition), or a range is drawn more often",
        choices=("none", "earlier", "later", "range")),
    mapped("timestep_bias_multiplier", 1.0, "objective.timestep_bias.multiplier", "how many times as often"),
    mapped("timestep_bias_begin", 0, "objective.timestep_bias.begin", "of range: the first"),
    mapped("timestep_bias_end", 1000, "objective.timestep_bias.end", "of range: the first that is no longer in it"),
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
    """What is written and not looked at under the strategy."""
    strategy = draft.text("timestep_bias_strategy") or "none"
    for word in ("multiplier", "begin", "end", "portion"):
        flag = f"timestep_bias_{word}"
        if flag not in draft.named or word in _USED[strategy]:
            continue
        if strategy == "none":
            draft.note(flag, "without --timestep_bias_strategy all timesteps are drawn alike")
        else:
            draft.note(flag, f"not looked at with {strategy}, there as here")
    if strategy == "range" and "timestep_bias_end" in draft.named:
        draft.note("timestep_bias_end", f"timestep {draft.integer('timestep_bias_end')} itself is not preferred")
