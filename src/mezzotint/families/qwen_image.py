"""Qwen-Image (arXiv:2508.02324) and Qwen-Image-Edit, read from diffusers folders, written as folders.

A caption is put into a fixed instruction to describe an image and encoded by the language model of Qwen2.5-VL; its last
hidden states, without those of the instruction, are the text, with a mask. The autoencoder is Wan's, for one frame.

Models that edit get images twice: their latents' tokens follow the noisy ones, and Qwen2.5-VL sees them before the
caption through its vision tower. Qwen-Image-Edit takes one image, Qwen-Image-Edit-Plus (2509, 2511) one or several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from mezzotint.errors import WeightsError
from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared.flow import (
    ClipVaeFamily,
    pack_latents,
    token_lengths,
    unpack_latents,
)
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs
from mezzotint.settings.families.qwen_image import SPEC, QwenImageSettings
from mezzotint.shapes import TextImages
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.files import fingerprint
from mezzotint.weights.folder.model_folder import require_plain
from mezzotint.weights.folder.tokenizer import tokenize, tokenizer_errors
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles

_QWEN = "text_encoder"
_PROCESSOR = "processor"
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
_PAD = "<|image_pad|>"
_WITH_VISION = "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VLModel"


@dataclass(frozen=True, slots=True)
class Prompt:
    """How a model's captions are put to Qwen2.5-VL. system: the instruction. prefix: tokens before the user's text,
    which are dropped. image: the text of an image by its number, which precedes the caption. seen: how images are
    seen."""

    system: str
    prefix: int
    image: str = ""
    seen: TextImages | None = None

    def write(self, caption: str, images: str = "") -> str:
        """The text of a caption. images: the text of its images."""
        user = f"<|im_start|>user\n{images}{caption}<|im_end|>\n<|im_start|>assistant\n"
        return f"<|im_start|>system\n{self.system}<|im_end|>\n{user}"


_DESCRIBE = (
    "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the "
    "objects and background:"
)
_ALTER = (
    "Describe the key features of the input image (color, shape, size, texture, objects, background), then explain how "
    "the user's text instruction should alter or modify the image. Generate a new image that meets the user's "
    "requirements while maintaining consistency with the original input where appropriate."
)
_TEXT, _EDIT, _PLUS = "QwenImagePipeline", "QwenImageEditPipeline", "QwenImageEditPlusPipeline"
_PROMPTS = {
    _TEXT: Prompt(_DESCRIBE, 34),
    _EDIT: Prompt(_ALTER, 64, _IMAGE, TextImages(1024 * 1024, 32, 1472)),
    _PLUS: Prompt(_ALTER, 64, f"Picture {{}}: {_IMAGE}", TextImages(384 * 384, 32, 256)),
}
"""By pipeline. Images with sides of up to 1 to 20 have at most 1,443 tokens of 28 × 28 pixels, and 235."""


class Files(FlowFiles):
    """The files of Qwen-Image. The pipeline in model_index.json says whether a model edits: its denoiser is that of a
    text-to-image model."""

    spec = SPEC
    pipelines = tuple(_PROMPTS)

    @property
    def pipeline(self) -> str:
        """The pipeline class in model_index.json."""
        return str(self.folder.index["_class_name"])

    @property
    def prompt(self) -> Prompt:
        """How captions are encoded."""
        return _PROMPTS[self.pipeline]

    @property
    def text_images(self) -> TextImages | None:
        """See ModelFiles."""
        return self.prompt.seen

    @property
    def networks(self) -> Mapping[str, str]:
        """See ModelFiles: a model that edits has a vision tower."""
        return {**self.spec.networks, _QWEN: _WITH_VISION} if self.text_images else self.spec.networks

    @property
    def condition_names(self) -> tuple[str, ...]:
        """See ModelFiles: Qwen-Image-Edit takes the image before the edit."""
        return ("source",) if self.pipeline == _EDIT else ()

    @property
    def min_conditions(self) -> int | None:
        """See ModelFiles: Qwen-Image-Edit-Plus takes one or several images."""
        return 1 if self.pipeline == _PLUS else None

    def text_identity(self) -> str:
        """See FlowFiles, for a model that edits with its prompt and image processor."""
        if self.text_images is None:
            return super().text_identity()
        digest = fingerprint.of_files([self.root / _PROCESSOR / name for name in _PROCESSOR_FILES])
        return f"{super().text_identity()} {self.pipeline} processor={digest}"

    def image_processor(self) -> Any:
        """The image processor of Qwen2.5-VL, which computes with Pillow. Raises WeightsError E1409."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        root = self.root / _PROCESSOR
        if not any((root / name).is_file() for name in _PROCESSOR_FILES):
            raise WeightsError(f"{root}: lacks {_PROCESSOR_FILES[0]}; download the complete model", code="E1409")
        require_plain(root)
        with tokenizer_errors(root, what="image processor"):
            return Qwen2VLImageProcessorPil.from_pretrained(str(root), local_files_only=True)

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser, text = configs["denoiser"], configs[_QWEN]
        channels = 4 * int(configs["vae"].get("z_dim", 16))
        yield "the denoiser takes packed latents of channels", denoiser.get("in_channels", 64), channels
        width = (text.get("text_config") or text).get("hidden_size")
        yield "the denoiser takes text of width", denoiser.get("joint_attention_dim"), width

    def length(self, part: str) -> int:
        """See FlowFiles: with the template's prefix."""
        return self.prompt.prefix + self.settings.get_section(QwenImageSettings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_QWEN) - self.prompt.prefix, int(self.configs["denoiser"]["joint_attention_dim"])


class Family(ClipVaeFamily):
    """Qwen-Image: latents are packed two by two, texts have a mask."""

    spec = SPEC
    files = Files

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        self._prompt = files.prompt
        self._open_image_processor = files.image_processor
        self._image_processor: Any = None

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: hidden states (B, 512, 3584), zeros after the text, with a mask of the text."""
        encoder, (length, width) = self._part(_QWEN), self._text_shape
        if not captions:
            empty = self._empty(_QWEN, length, width)
            return TextEmbedding(empty, torch.ones(0, length, dtype=torch.int64, device=empty.device), lengths=())
        prefix = self._prompt.prefix
        ids, mask, lengths = self._tokens(_QWEN, captions, before=prefix)
        with without_autocast(encoder):
            states = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        states, mask = states[:, prefix:], mask[:, prefix:]
        return TextEmbedding(states * mask[:, :, None].to(states.dtype), mask, lengths=lengths)

    def encode_text_with_images(
        self, captions: Sequence[str], images: Sequence[Sequence[Tensor | None]]
    ) -> TextEmbedding:
        """See ModelFamily: hidden states (B, 512 + tokens of images, 3584), each text encoded by itself."""
        if self.text_images is None or not captions:
            return self.encode_text(captions)
        length = self._text_shape[0] + self.text_images.tokens * max(map(len, images))
        each = [self._encode_with_images(*pair, length) for pair in zip(captions, images, strict=True)]
        lengths = tuple(map(len, each))
        states = torch.stack([nn.functional.pad(one, (0, 0, 0, length - len(one))) for one in each])
        mask = torch.arange(length)[None, :] < torch.tensor(lengths)[:, None]
        return TextEmbedding(states, mask.to(states.device, torch.int64), lengths=lengths)

    def _encode_with_images(self, caption: str, images: Sequence[Tensor | None], length: int) -> Tensor:
        """(L, D), at most `length` tokens; only a caption is truncated."""
        encoder, prefix = self._part(_QWEN), self._prompt.prefix
        device = next(encoder.parameters()).device
        shown = {number: image for number, image in enumerate(images, start=1) if image is not None}
        inputs, text = {}, ""
        if shown:
            processor = self._processor()
            patches = processor(images=list(shown.values()), return_tensors="pt")
            inputs = {name: patches[name].to(device) for name in ("pixel_values", "image_grid_thw")}
            counts = (patches["image_grid_thw"].prod(dim=1) // processor.merge_size**2).tolist()
            for number, count in zip(shown, counts, strict=True):
                text += self._prompt.image.format(number).replace(_PAD, _PAD * count)
        tokenizer, most = self._tokenizer(_QWEN), prefix + self._text_shape[0]
        most += len(tokenize(tokenizer, [text]).input_ids[0])
        text = self._prompt.write(caption, text)
        tokens = tokenize(tokenizer, [text], truncation=True, max_length=min(most, prefix + length))
        ids = torch.tensor(tokens.input_ids, device=device)
        if shown:  # without it transformers 5 leaves out the positions of rows and columns
            inputs["mm_token_type_ids"] = (ids == encoder.config.image_token_id).int()
        with without_autocast(encoder):
            states = encoder(input_ids=ids, attention_mask=torch.ones_like(ids), **inputs).last_hidden_state
        return cast(Tensor, states[0, prefix:])

    def _processor(self) -> Any:
        if self._image_processor is None:
            self._image_processor = self._open_image_processor()
        return self._image_processor

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        return [self._prompt.write(caption) for caption in captions]

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is σ; texts are cut to the longest of the batch."""
        net, x, text = self._part("denoiser"), noised.model_input, condition.text
        latents = [x, *condition.images.values()]
        tokens = [pack_latents(image) for image in latents]
        count = tokens[0].shape[1]
        lengths = token_lengths(text)
        longest, mask = max(lengths, default=1), cast(Tensor, text.mask)
        velocity = net(
            hidden_states=cast_like_parameters(tokens[0] if len(tokens) == 1 else torch.cat(tokens, dim=1), net),
            encoder_hidden_states=cast_like_parameters(text.states[:, :longest], net),
            encoder_hidden_states_mask=None if min(lengths, default=1) == longest else mask[:, :longest],
            timestep=noised.model_t / 1000,
            img_shapes=[[(1, image.shape[-2] // 2, image.shape[-1] // 2) for image in latents]] * len(x),
            return_dict=False,
        )[0]
        return unpack_latents(cast(Tensor, velocity)[:, :count], *x.shape[-2:])

    def guide(self, away: Tensor, towards: Tensor, scale: float) -> Tensor:
        """See ModelFamily: each token is rescaled to its norm without guidance."""
        guided, plain = pack_latents(super().guide(away, towards, scale)), pack_latents(towards)
        ratio = plain.norm(dim=-1, keepdim=True) / guided.norm(dim=-1, keepdim=True)
        return unpack_latents(guided * ratio, *towards.shape[-2:])
