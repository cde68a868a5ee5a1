"""Captions in the chat template of Qwen3, the text encoder of Z-Image and FLUX.2 Klein.

Both models were trained with Qwen3's chat template: a caption is a single user message. The template of a model folder
is a program (Jinja). It is compared with known templates and never run; for a single user message they all produce the
text of `write_chat`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mezzotint.errors import WeightsError

KNOWN_TEMPLATES = {
    "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8": "Qwen3 (4,168 bytes)",
    "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": "Qwen3 as of April 2025 (4,116 bytes)",
    "96f953010d230aa4f29f5402a1ee5a24454493cf8207e1fde932f1bcaf4d845b": "the tiny models that ship with Mezzotint",
}
"""SHA-256 of the template's text in UTF-8 → its origin."""


def write_chat(captions: Sequence[str], *, thinking: bool) -> list[str]:
    """Captions in Qwen3's chat template, each a single user message, up to the start of the answer. thinking: False
    adds the empty thoughts of `enable_thinking=False`."""
    thoughts = "" if thinking else "<think>\n\n</think>\n\n"
    return [f"<|im_start|>user\n{caption}<|im_end|>\n<|im_start|>assistant\n{thoughts}" for caption in captions]


def require_known_template(tokenizer: Any, folder: Path, *, setting: str) -> None:
    """Raises WeightsError E1409 if a tokenizer's folder has an unknown chat template. A folder without a template is
    accepted. setting: the setting that ignores the template."""
    template = tokenizer.chat_template
    if template is None:
        return
    if isinstance(template, str):
        digest = hashlib.sha256(template.removesuffix("\n").encode("utf-8", "surrogatepass")).hexdigest()
        if digest in KNOWN_TEMPLATES:
            return
    file = folder / "chat_template.jinja"
    file = file if file.is_file() else folder / "tokenizer_config.json"
    raise WeightsError(
        f"{file}: the chat template is not Qwen3's. A template is a program, and Mezzotint does not run it. Use the "
        f"tokenizer folder that the model was published with, or set {setting}=true to ignore the template and use "
        "Qwen3's format",
        code="E1409",
    )
