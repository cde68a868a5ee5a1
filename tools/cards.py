"""Computes what fits on which graphics card, for models in their published size, and writes tools/cards.json, from
which `python tools/write_docs.py` writes docs/guides/cards.md. Takes up to an hour. No weights are needed, but all
extras are.

    python tools/cards.py               # everything
    python tools/cards.py flux sdxl     # some models
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from card_pages import CARDS, DATA  # noqa: E402
from mezzotint.assets import MODELS as SHIPPED  # noqa: E402
from mezzotint.settings.reading.read import read_text  # noqa: E402
from mezzotint.shapes import Size  # noqa: E402
from mezzotint.tasks.check.fitting import Search  # noqa: E402
from mezzotint.tasks.check.plans import Plan  # noqa: E402
from support.flow_folders import FULL, full_size  # noqa: E402

HOST = 64
"""Gigabytes of host memory."""
MODELS = {
    "sd15": ("Stable Diffusion 1.5", "sd", "sd1", (512, 512)),
    "sd21": ("Stable Diffusion 2.1", "sd", "sd2-v", (768, 768)),
    "sdxl": ("SDXL", "sdxl", "sdxl", (1024, 1024)),
    "sd35-medium": ("SD3.5 medium", "sd3", "sd35-medium", (1024, 1024)),
    "sd35-large": ("SD3.5 large", "sd3", "sd3.5-large", (1024, 1024)),
    "wan": ("Wan 2.1 1.3B", "wan", "wan-1.3b", (832, 480, 49)),
    "ltx": ("LTX-Video 2B", "ltx", "ltx-2b", (704, 512, 97)),
    "klein": ("FLUX.2 Klein 4B", "flux2", "klein-4b", (1024, 1024)),
    "z-image": ("Z-Image", "z-image", "z-image", (1024, 1024)),
    "chroma": ("Chroma1", "chroma", "chroma", (1024, 1024)),
    "flux": ("FLUX.1 dev", "flux", "flux-dev", (1024, 1024)),
    "krea2": ("Krea 2", "krea2", "krea2", (1024, 1024)),
    "qwen-image": ("Qwen-Image", "qwen-image", "qwen-image", (1024, 1024)),
    "flux2-dev": ("FLUX.2 dev", "flux2", "flux2-dev", (1024, 1024)),
}
"""By name: the model, its family, its configurations (shipped, or of the tests), the usual size of a sample."""
METHODS = {"lora": ("model.adapter={kind: lora, rank: 16}", "optim.lr=1e-4"), "full": ()}


def compute(name: str, method: str) -> dict[str, Any]:
    """The plan for each card: with `HOST`; with any host memory, if only that helps; the smallest card otherwise."""
    _, family, configs, size = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = full_size(configs, Path(folder) / name) if configs in FULL else SHIPPED / configs
        clips = (
            f"  format: videofolder\n  clips: {{frames: {size[2]}, buckets: [[{size[2]}, {size[1]}, {size[0]}]]}}\n"
            if size[2:]
            else ""
        )
        text = (
            f"schema: 1\nmodel: {{family: {family}, path: {path}, weights: random}}\n"
            f"data:\n  batch_size: 1\n  cache: {{latents: true, text: true}}\n{clips}run: {{precision: bf16}}\n"
        )
        search = Search(read_text(text, overrides=METHODS[method]).recipe, {Size(*size): 1}, "cpu")
        cells = {}
        for card in CARDS:
            plan = search.find(card * 10**9, HOST * 10**9) or search.find(card * 10**9)
            cells[str(card)] = None if plan is None else _plain(plan)
        if search.left_out:
            raise SystemExit(f"not everything could be tried: {search.left_out}")
        least = None if all(cells.values()) else search.smallest()
        return {"cards": cells} | ({"smallest": {"card": least[0], **_plain(least[1])}} if least is not None else {})


def _plain(plan: Plan) -> dict[str, Any]:
    return {
        "settings": dict(plan.settings), "needed": plan.needed, "host": plan.memory.held_on_host,
        "blocks": len(plan.memory.blocks),
    }  # fmt: skip


def main(names: list[str]) -> None:
    """Computes the models and writes the file after each."""
    for name in names or MODELS:
        title, _, _, size = MODELS[name]
        row = {"title": title, "size": list(size)} | {method: compute(name, method) for method in METHODS}
        computed = json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}
        computed[name] = row
        ordered = {key: computed[key] for key in MODELS if key in computed}
        DATA.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
