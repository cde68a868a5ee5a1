"""Captions from a vision-language model in a folder, through transformers. No code of the folder is run."""

from __future__ import annotations

import multiprocessing
import resource
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image

from mezzotint.data.catalogue import likeness
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import DatasetError, escape_line
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.caption.errors import CaptionError

PROMPT = "Describe this image in one or two sentences."
_SIDE = 1024
"""Pixels of the longer side of what the model sees."""

_MAX_TOKENS = 256
_TEMPLATE_SECONDS = 20
_TEMPLATE_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class VisionLanguageModel:
    """A model with its processor. text: the prompt in the model's format, the same for all images."""

    model: Any
    processor: Any
    text: str
    settings: DataSettings

    @classmethod
    def open(cls, folder: Path, settings: DataSettings, *, prompt: str | None) -> Self:
        """Opens a folder, on the GPU if there is one. Raises DatasetError E1267 if it cannot be used."""
        if not folder.is_dir():
            raise DatasetError(f"{folder} is not a folder; --model takes a model on this disk", code="E1267")
        from transformers import AutoModelForImageTextToText, AutoProcessor

        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            processor = AutoProcessor.from_pretrained(folder, **local)
            text = write_prompt(processor, prompt or PROMPT)
            model = AutoModelForImageTextToText.from_pretrained(folder, **local, dtype="auto", use_safetensors=True)
        except DatasetError:
            raise
        except Exception as error:  # transformers raises anything for files of another kind
            reason = escape_line(" ".join(str(error).split())[:300])
            raise DatasetError(f"{folder}: is not a model that captions images: {reason}", code="E1267") from error
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = model.to(device) if device.type == "cuda" else model.float()
        return cls(model.eval(), processor, text, settings)

    def caption(self, catalogue: Catalogue, row: int) -> str:
        """The caption of a row's image, with the most probable token at each position. Raises CaptionError."""
        try:
            image = likeness.image_of(catalogue, row, self.settings, _SIDE)
            return self.describe(image)
        except (DatasetError, OSError, ValueError, RuntimeError) as error:
            raise CaptionError(escape_line(" ".join(str(error).split())[:200])) from error

    @torch.inference_mode()
    def describe(self, image: Image.Image) -> str:
        """What the model says of an image."""
        inputs = self.processor(images=[image], text=[self.text], return_tensors="pt")
        inputs = inputs.to(self.model.device, self.model.dtype)
        tokens = self.model.generate(**inputs, max_new_tokens=_MAX_TOKENS, do_sample=False)
        if not self.model.config.is_encoder_decoder and "input_ids" in inputs:
            known = inputs["input_ids"]
            is_repeated = tokens.shape[1] >= known.shape[1] and torch.equal(tokens[:, : known.shape[1]], known)
            tokens = tokens[:, known.shape[1] :] if is_repeated else tokens
        return str(self.processor.batch_decode(tokens, skip_special_tokens=True)[0])


def write_prompt(processor: Any, prompt: str) -> str:
    """A prompt with an image in a processor's chat template; without a template the prompt itself. The template is a
    program of the folder: it runs in a process with limits. Raises DatasetError E1267 if it fails or exceeds them."""
    if getattr(processor, "chat_template", None) is None:
        return prompt
    content = [{"type": "image"}, {"type": "text", "text": prompt}]
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_apply, args=(processor, [{"role": "user", "content": content}], sender))
    process.start()
    sender.close()
    try:
        answer = receiver.recv() if receiver.poll(_TEMPLATE_SECONDS) else None
    except EOFError:
        answer = None
    process.kill()
    process.join()
    if not isinstance(answer, str):
        raise DatasetError(
            f"the chat template of the model fails, or takes over {_TEMPLATE_SECONDS} seconds or too much memory; use "
            "the template that the model was published with",
            code="E1267",
        )
    return answer


def _apply(processor: Any, messages: list[dict[str, Any]], sender: Connection) -> None:
    soft = _address_space() + _TEMPLATE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (soft, soft))
    try:
        sender.send(processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    except Exception:
        sender.send(None)


def _address_space() -> int:
    """Bytes of addresses that this process has."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    return pages * resource.getpagesize()
