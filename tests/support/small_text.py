"""A small CLIP text encoder as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from mezzotint.weights.folder import components

TEXT: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 12,
    "bos_token_id": 38,
    "eos_token_id": 39,
    "torch_dtype": "float32",
    "model_type": "clip_text_model",
}
HERE = Path("folder/config.json")


def text_file(tmp_path: Path, seed: int = 0) -> tuple[Path, torch.nn.Module]:
    module = components.random_network("clip_text", TEXT, seed, "text_encoder", where=HERE)
    path = tmp_path / "text" / "model.safetensors"
    components.write("clip_text", module.state_dict(), TEXT, path.parent, "fp32")
    return path, module


def same(one: torch.nn.Module, two: torch.nn.Module) -> bool:
    a, b = one.state_dict(), two.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
