"""Arguments of adapters that kohya's trainers share: dropout of ranks and modules, rates of LoRA+."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mezzotint.compat.kit.dialect import Draft, Row, row

FACTORS: tuple[Row, ...] = (
    row("rank_dropout", 0.0, "model.adapter.rank_dropout", "ranks are left out with this chance, by sample", least=0),
    row("module_dropout", 0.0, "model.adapter.module_dropout",
        "layers are left out with this chance; here by sample, in the script for a whole batch", least=0),
    row("loraplus_lr_ratio", 0.0, "model.adapter.b_lr_ratio", "rate of the second factor over the first; 0 is off",
        least=0),
)  # fmt: skip


def set_factors(draft: Draft, arguments: Mapping[str, Any], kind: str, ratio: float) -> None:
    """Sets what `FACTORS` contains. kind: `model.adapter.kind`. ratio: of LoRA+; 0 or 1 is none."""
    chances = {name: arguments.get(name) or 0.0 for name in ("rank_dropout", "module_dropout")}
    for name, value in {**chances, "b_lr_ratio": ratio or 1.0}.items():
        if value == (1.0 if name == "b_lr_ratio" else 0.0):
            continue
        if kind not in ("lora", "rslora", *(("dora",) if name == "b_lr_ratio" else ())):
            theirs = "loraplus_lr_ratio" if name == "b_lr_ratio" else name
            draft.refuse("network_args", f"{kind} has no {theirs} in Mezzotint", "leave it out")
        elif name != "b_lr_ratio" and value >= 1:
            draft.refuse("network_args", f"{name} must be below 1, got {value:g}", code="E1017")
        else:
            draft.set(f"model.adapter.{name}", value, "network_args")
    if chances["module_dropout"]:
        draft.note("network_args", "module_dropout is drawn for each sample; in the script, for a whole batch")
