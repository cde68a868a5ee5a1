"""How captions are written for Qwen3, the text encoder of Z-Image and FLUX.2 Klein.

Both models were trained with Qwen3's chat template: a caption is the one message of a user. The template of a model
folder is a program (Jinja). It is compared with the ones that are known here, and never run; for a single message of a
user they all give the same text, which `write_chat` writes.
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
"""SHA-256 of the template's text in UTF-8 → whose it is."""


def write_chat(captions: Sequence[str], *, thinking: bool) -> list[str]:
    """Captions as Qwen3's chat template writes them, each the one message of a user, up to where the answer begins.
    thinking: False adds the empty thoughts that `enable_thinking=False` adds."""
    thoughts = "" if thinking else "<think>\n\n</think>\n\n"
    return [f"<|im_start|>user\n{caption}<|im_end|>\n<|im_start|>assistant\n{thoughts}" for caption in captions]


def require_known_template(tokenizer: Any, folder: Path, *, setting: str) -> None:
    """Raises WeightsError E1409 where a tokenizer's folder brings a chat template that is not known. One without a
    template is fine. setting: the one that ignores the template."""
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
        f"{file}: its chat template is not Qwen3's. A template is a program, and Mezzotint does not run it. Take the "
        f"tokenizer folder that the model was published with, or set {setting}=true to ignore the template and write "
        "captions as Qwen3's own does",
        code="E1409",
    )
