"""Shipped recipes on tiny models: what stands behind their names to try them here."""

from __future__ import annotations

TINY = ("model.weights=random", "run.precision=fp32", "run.device=cpu", "data.cache.path=cache")
SDXL = (*TINY, "model.path=tiny-sdxl", "data.path=shapes")
SMALL = ("data.resolution=64", "data.buckets.step=16")
LATTE = (*TINY, "model.path=tiny-latte", "model.text_encoder=null", "data.resolution=32", "data.path=films",
         "data.buckets.step=16", "data.clips.frames=5")  # fmt: skip
WORDS = {
    "sdxl": (*SDXL, *SMALL), "sdxl-cached": (*SDXL, *SMALL), "sdxl-24gb": (*SDXL, *SMALL),
    "sdxl-lora": (*SDXL, *SMALL), "sdxl-lora-8gb": (*SDXL, *SMALL),
    "sdxl-multi-aspect": (*SDXL, "data.buckets.sizes=[[64, 64], [48, 80]]"), "latte-17f": LATTE, "latte-65f": LATTE,
}  # fmt: skip


STRAIGHT = {
    "sd35-lora-24gb": ("tiny-sd3", "sd35-medium"), "flux-lora-24gb": ("tiny-flux", "flux-dev"),
    "klein-lora-24gb": ("tiny-flux2", "klein-4b"), "qwen-image-lora-24gb": ("tiny-qwen-image", "qwen-image"),
    "z-image-lora-24gb": ("tiny-z-image", "z-image"), "wan-lora-24gb": ("tiny-wan", "wan-1.3b"),
    "ltx-lora-24gb": ("tiny-ltx", "ltx-2b"),
}  # fmt: skip
WHOLE = {
    "sd35-80gb": "sd35-lora-24gb", "flux-80gb": "flux-lora-24gb", "klein-80gb": "klein-lora-24gb",
    "qwen-image-80gb": "qwen-image-lora-24gb", "z-image-80gb": "z-image-lora-24gb", "wan-80gb": "wan-lora-24gb",
    "ltx-80gb": "ltx-lora-24gb",
}  # fmt: skip
"""Recipes of whole models, with that of an adapter of the same."""
STRAIGHT |= {name: STRAIGHT[adapter] for name, adapter in WHOLE.items()}
"""Recipes of models on straight paths, with their tiny model, and the published one's configurations."""
FILMS = ("data.path=films", "data.clips.frames=9", "data.clips.buckets=[[9, 32, 32]]", "data.clips.fps=null")
WORDS |= {
    name: (*TINY, f"model.path={tiny}", *(FILMS if tiny in ("tiny-wan", "tiny-ltx") else ("data.path=shapes", *SMALL)))
    for name, (tiny, _) in STRAIGHT.items()
}
