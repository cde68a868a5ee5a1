"""The training scripts of sd-scripts: what each of them trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Script:
    """A training script. name: its file without .py. family: of its models. method: whether it trains an adapter, all
    weights, or embeddings of tokens."""

    name: str
    family: Literal["sd", "sdxl", "sd3", "flux", "chroma"]
    method: Literal["adapter", "weights", "embeddings"]

    @property
    def is_flow(self) -> bool:
        """Whether its models are flow-matching models."""
        return self.family == "sd3" or self.is_flux

    @property
    def is_flux(self) -> bool:
        """Whether it is a script of FLUX.1, which may train Chroma."""
        return self.family in ("flux", "chroma")

    def is_one_of(self, selector: str) -> bool:
        """Whether a selector of the tables includes this script. selector: words separated by spaces, of which one must
        match: all, a name, a family, a method, flow or unet, or several of these joined by +."""
        family = "flux" if self.is_flux else self.family
        names = {"all", self.name, family, self.method, "flow" if self.is_flow else "unet"}
        return any(names.issuperset(word.split("+")) for word in selector.split())


SCRIPTS = {
    script.name: script
    for script in (
        Script("train_network", "sd", "adapter"),
        Script("sdxl_train_network", "sdxl", "adapter"),
        Script("flux_train_network", "flux", "adapter"),
        Script("sd3_train_network", "sd3", "adapter"),
        Script("train_db", "sd", "weights"),
        Script("fine_tune", "sd", "weights"),
        Script("sdxl_train", "sdxl", "weights"),
        Script("flux_train", "flux", "weights"),
        Script("sd3_train", "sd3", "weights"),
        Script("train_textual_inversion", "sd", "embeddings"),
        Script("sdxl_train_textual_inversion", "sdxl", "embeddings"),
    )
}
"""The supported scripts, by name."""
CHROMA = Script("flux_train_network", "chroma", "adapter")
"""The script of FLUX.1 with `--model_type=chroma`."""

_CONTROL = "trains a ControlNet, which Mezzotint does not support"
_LLLITE = "trains a ControlNet-LLLite, which Mezzotint does not support"
OTHER_SCRIPTS = {
    "anima_train.py": "trains Anima, which Mezzotint does not support",
    "anima_train_network.py": "trains an adapter of Anima, which Mezzotint does not support",
    "hunyuan_image_train_network.py": "trains an adapter of HunyuanImage, which Mezzotint does not support",
    "lumina_train.py": "trains Lumina Image 2, which Mezzotint does not support",
    "lumina_train_network.py": "trains an adapter of Lumina Image 2, which Mezzotint does not support",
    "flux_train_control_net.py": _CONTROL,
    "sdxl_train_control_net.py": _CONTROL,
    "train_control_net.py": _CONTROL,
    "train_controlnet.py": _CONTROL,
    "sdxl_train_control_net_lllite.py": _LLLITE,
    "sdxl_train_control_net_lllite_old.py": _LLLITE,
    "train_textual_inversion_XTI.py": "trains an embedding for each layer (XTI), which Mezzotint does not support; "
    "train_textual_inversion.py is supported",
    "train_leco.py": "trains sliders (LECO), which Mezzotint does not support",
    "sdxl_train_leco.py": "trains sliders (LECO), which Mezzotint does not support",
    "gen_img.py": "generates images: use mezzotint sample",
    "gen_img_diffusers.py": "generates images: use mezzotint sample",
    "sdxl_gen_img.py": "generates images: use mezzotint sample",
    "sdxl_minimal_inference.py": "generates images: use mezzotint sample",
    "flux_minimal_inference.py": "generates images: use mezzotint sample",
    "sd3_minimal_inference.py": "generates images: use mezzotint sample",
    "prepare_buckets_latents.py": "encodes images: use mezzotint cache",
    "cache_latents.py": "encodes images: use mezzotint cache",
    "cache_text_encoder_outputs.py": "encodes captions: use mezzotint cache",
    "merge_captions_to_metadata.py": "collects captions in a file; Mezzotint reads it, and caption files",
    "merge_dd_tags_to_metadata.py": "collects tags in a file; Mezzotint reads it, and caption files",
    "merge_lora.py": "merges adapters: use mezzotint merge",
    "sdxl_merge_lora.py": "merges adapters: use mezzotint merge",
    "flux_merge_lora.py": "merges adapters: use mezzotint merge",
    "svd_merge_lora.py": "merges adapters: use mezzotint merge",
    "extract_lora_from_models.py": "extracts an adapter from two models: use mezzotint extract",
    "flux_extract_lora.py": "extracts an adapter from two models: use mezzotint extract",
    "convert_diffusers20_original_sd.py": "converts models: use mezzotint convert",
    "convert_flux_lora.py": "converts adapters: use mezzotint convert",
}
"""What the project's other scripts do, by file."""
