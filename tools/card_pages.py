"""docs/guides/cards.md: what fits on which graphics card, as `tools/cards.py` computed it, and what was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tools" / "cards.json"
BENCHMARKS = ROOT / "benchmarks"
CARDS = (8, 12, 16, 24, 48, 80)
"""Gigabytes."""
HEAD = """# What fits on which card

The cheapest settings with which `mezzotint check --fit` makes a step fit, for each model in its published size. All
figures are **computed, not measured**, unless a cell has a link to a measurement. Written by `make docs` from
`tools/cards.json`, which `python tools/cards.py` computes.

One sample per step at the usual size, bf16, AdamW, latents and captions cached, 64 GB of host memory, estimated with
the autocast rules of a CPU. For larger batches `run.micro_batch=1` adds what gradients take between passes, and *in
backward* is not possible, which needs one pass per step. A cell has the settings that are added, the memory of the
card, and after the plus that of the host. A card of 12 GB has 12 · 10⁹ bytes here, and a twentieth stays free.

| in a cell | setting |
|---|---|
| as it is | none |
| recompute | `run.gradient_checkpointing.enabled=true` |
| 12 of 57 blocks | `run.offload.blocks=12`: the others wait in host memory, in full training with all states |
| in backward | `optim.in_backward=true optim.clip.scope=tensor`; changes results |
| 8-bit AdamW | `optim.optimizer.kind=adamw-8bit`; changes results |
| int8, nf4 | `run.frozen_dtype`; changes results |
| Adafactor | `optim.optimizer={kind: adafactor}`; another optimizer, with another `optim.lr` |
| **bold** | only with more than 64 GB of host memory |
| from 26 GB | the smallest card that would do, on which no setting helps |

Why one plan is better than another is in [big-models.md](big-models.md#settings-for-a-card).
"""
METHODS = {"lora": "LoRA of rank 16", "full": "Full training"}
MEASURED = {"memory.json": ("sd15", "full", "batches of 8 with EMA")}
"""Files of a card in benchmarks/ with measured memory: the model, the method, and how it differs from this page."""


def page() -> str:
    """The page, from the computed plans and the measurements there are."""
    computed = json.loads(DATA.read_text("utf-8"))
    measured = list(measurements())
    parts = [HEAD]
    for method, title in METHODS.items():
        head = ["model", "sample", *(f"{card} GB" for card in CARDS)]
        rows = [
            [row["title"], "×".join(map(str, row["size"])), *(_cell(row[method], card) for card in CARDS)]
            for row in computed.values()
        ]
        for name, of_method, card, text in measured:
            if of_method == method and name in computed:
                rows[list(computed).index(name)][2 + CARDS.index(card)] += f"; {text}"
        lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
        parts.append("\n".join([f"## {title}", "", "Computed, not measured:", "", *lines, ""]))
    return "\n".join(parts)


def measurements() -> Iterator[tuple[str, str, int, str]]:
    """What was measured on a card: the model, the method, the gigabytes of the card, and the text with its link."""
    for file in sorted(BENCHMARKS.glob("*/*.json")):
        if file.name in MEASURED:
            record = json.loads(file.read_text("utf-8"))
            result = record["parts"]["peak memory"]
            size = record["device"]["memory"]
            card = max((card for card in CARDS if card * 10**9 <= size), default=None)
            if card is not None and not record.get("is_dry_run"):
                name, method, how = MEASURED[file.name]
                figures = f"{result['measured'] / 1e9:.1f} GB, {result['estimate'] / 1e9:.1f} GB computed"
                link = f"../../benchmarks/{file.parent.name}/{file.name}"
                yield name, method, card, f"measured on {record['device']['name']}: [{figures}]({link}), {how}"


def _cell(row: Mapping[str, Any], card: int) -> str:
    plan = row["cards"][str(card)]
    if plan is None:
        return f"from {_format(row['smallest']['card'])}"
    host = f" + {_format(plan['host'])}" if plan["host"] else ""
    text = f"{_settings(plan)}: {_format(plan['needed'])}{host}"
    return f"**{text}**" if plan["host"] > 64e9 else text


def _format(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size < 10e9 else f"{size / 1e9:.0f} GB"


def _settings(plan: Mapping[str, Any]) -> str:
    settings, words = plan["settings"], []
    for path, value in settings.items():
        match path:
            case "run.gradient_checkpointing.enabled":
                words.append("recompute")
            case "run.offload.blocks":
                words.append(f"{value} of {plan['blocks']} blocks")
            case "optim.in_backward":
                words.append("in backward")
            case "optim.clip.scope":
                pass  # comes with the one before
            case "optim.optimizer.kind":
                words.append("8-bit AdamW")
            case "optim.optimizer":
                words.append("Adafactor")
            case "run.frozen_dtype":
                words.append(value)
            case _:
                raise ValueError(f"no words for {path}={value}")
    return ", ".join(words) or "as it is"
