"""The training scripts of musubi-tuner: what each of them trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TrainingScript:
    """A training script. name: its file without .py. family: of its models. method: whether it trains an adapter or all
    weights. network: the module of its LoRA."""

    name: str
    family: Literal["wan", "qwen-image", "z-image", "flux", "flux2"]
    method: Literal["adapter", "weights"]
    network: str = ""

    def is_one_of(self, selector: str) -> bool:
        """Whether a selector of the tables includes this script: all, or words separated by spaces, of which one is a
        name, a family or a method."""
        return bool({"all", self.name, self.family, self.method} & set(selector.split()))


SCRIPTS = {
    script.name: script
    for script in (
        TrainingScript("wan_train_network", "wan", "adapter", "networks.lora_wan"),
        TrainingScript("qwen_image_train_network", "qwen-image", "adapter", "networks.lora_qwen_image"),
        TrainingScript("qwen_image_train", "qwen-image", "weights"),
        TrainingScript("zimage_train_network", "z-image", "adapter", "networks.lora_zimage"),
        TrainingScript("zimage_train", "z-image", "weights"),
        TrainingScript("flux_kontext_train_network", "flux", "adapter", "networks.lora_flux"),
        TrainingScript("flux_2_train_network", "flux2", "adapter", "networks.lora_flux_2"),
    )
}
"""The supported scripts, by name."""

_MODELS = {
    "fpack": "FramePack", "hidream_o1": "HiDream-O1", "hv": "HunyuanVideo",
    "hv_1_5": "HunyuanVideo 1.5", "ideogram4": "Ideogram 4", "kandinsky5": "Kandinsky 5", "krea2": "Krea 2",
}  # fmt: skip
_CACHE_STEPS = ("cache_latents", "cache_text_encoder_outputs")

OTHER_SCRIPTS = {
    **{f"{short}_train_network.py": f"trains an adapter of {name}, which Mezzotint does not support"
       for short, name in _MODELS.items()},
    **{f"{short}_train.py": f"trains {_MODELS[short]}, which Mezzotint does not support"
       for short in ("hidream_o1", "hv")},
    **{f"{short}_{step}.py": f"encodes data for {name}, which Mezzotint does not support"
       for short, name in _MODELS.items() if short not in ("hidream_o1", "hv") for step in _CACHE_STEPS},
    **{f"{step}.py": "encodes data for HunyuanVideo, which Mezzotint does not support" for step in _CACHE_STEPS},
    "hidream_o1_cache_pixel.py": "encodes data for HiDream-O1, which Mezzotint does not support",
    "hidream_o1_cache_text_encoder_outputs.py": "encodes data for HiDream-O1, which Mezzotint does not support",
    "flux_2_train_network_self_flow.py": "trains FLUX.2 with Self-Flow, which Mezzotint does not support",
    **{f"{family}_generate_{kind}.py": "generates: use mezzotint sample"
       for family, kind in {"wan": "video", "qwen_image": "image", "zimage": "image", "flux_kontext": "image",
                                "flux_2": "image"}.items()},
    "krea2_train_network.py": "trains an adapter of Krea 2; its options are not translated: write a recipe with "
                              "model.family=krea2",
    "merge_lora.py": "merges adapters: use mezzotint merge",
    "convert_lora.py": "converts adapters: use mezzotint convert",
    "lora_post_hoc_ema.py": "averages adapters after training, which Mezzotint does not support",
    "caption_images_by_qwen_vl.py": "writes captions, which Mezzotint does not",
}  # fmt: skip
"""What the project's other scripts do, by file."""

NEEDLESS = {
    f"{family}_{step}.py": "training fills its cache itself, and encodes only what is new or changed"
    for family in ("wan", "qwen_image", "zimage", "flux_kontext", "flux_2")
    for step in _CACHE_STEPS
}
"""Scripts that Mezzotint does not need, by file."""
