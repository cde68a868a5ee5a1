"""Tiny Qwen-Image-Edit models: a text-to-image model with a tokenizer for images and a random vision-language model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from support.sd_folder import edit

QWEN = Path(__file__).parents[1] / "parity" / "data" / "flow" / "qwen_image" / "model"
_TOKENS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


def make_edit_model(folder: Path, pipeline: str, **transformer: Any) -> Path:
    """A model folder of `QwenImageEditPipeline` or `QwenImageEditPlusPipeline`. transformer: changes of the denoiser's
    configuration."""
    shutil.copytree(QWEN, folder)
    tokenizer: Any = Qwen2Tokenizer.from_pretrained(str(folder / "tokenizer"), local_files_only=True)
    tokenizer.add_special_tokens({"extra_special_tokens": _TOKENS}, replace_extra_special_tokens=False)
    tokenizer.save_pretrained(str(folder / "tokenizer"))
    shutil.copytree(folder / "tokenizer", folder / "processor")
    Qwen2VLImageProcessorPil().save_pretrained(str(folder / "processor"))
    config = json.loads((folder / "text_encoder" / "config.json").read_text())
    ids = tokenizer.convert_tokens_to_ids(_TOKENS)
    keys = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
    config |= dict(zip(keys, ids, strict=True))
    config["text_config"] |= {"vocab_size": len(tokenizer)}
    torch.manual_seed(7)
    encoder = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(**config))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.2 if parameter.ndim > 1 else 1.0)
    shutil.rmtree(folder / "text_encoder")
    encoder.save_pretrained(str(folder / "text_encoder"))
    entries = {"_class_name": pipeline, "processor": ["transformers", "Qwen2VLProcessor"]}
    edit(folder / "model_index.json", **entries)
    edit(folder / "transformer" / "config.json", **transformer)
    return folder


def open_pipeline(kind: Any, folder: Path) -> Any:
    """The folder in a pipeline of diffusers, without its processor, which needs torchvision."""
    pipeline = kind.from_pretrained(str(folder), processor=None, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@torch.no_grad()
def embed_as_pipeline(pipeline: Any, folder: Path, caption: str, images: Sequence[Image.Image]) -> Tensor:
    """The hidden states (1, L, D) of a caption after images as the text encoder sees them: the pipeline's template and
    text encoder, with the inputs that transformers' processor makes."""
    processor = Qwen2VLImageProcessorPil.from_pretrained(str(folder / "processor"), local_files_only=True)
    patches, text = processor(images=list(images), return_tensors="pt"), pipeline.prompt_template_encode
    if "Plus" in type(pipeline).__name__:
        pictures = (f"Picture {n}: <|vision_start|><|image_pad|><|vision_end|>" for n in range(1, len(images) + 1))
        text = text.replace("{}", "".join(pictures) + "{}")
    text = text.replace("<|image_pad|>", "<|placeholder|>")
    for grid in patches["image_grid_thw"].tolist():
        text = text.replace("<|placeholder|>", "<|image_pad|>" * (grid[0] * grid[1] * grid[2] // 4), 1)
    ids = pipeline.tokenizer(text.format(caption), return_tensors="pt").input_ids
    types = (ids == pipeline.text_encoder.config.image_token_id).int()
    states: Tensor = pipeline.text_encoder(
        input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=patches["pixel_values"],
        image_grid_thw=patches["image_grid_thw"], mm_token_type_ids=types, output_hidden_states=True,
    ).hidden_states[-1]  # fmt: skip
    return states[:, pipeline.prompt_template_encode_start_idx :]
