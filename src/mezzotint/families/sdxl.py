"""SDXL's base model and its refiner (Podell et al. 2023, arXiv:2307.01952), read from folders and single-file
checkpoints, written as folders.

The base model has two text encoders, CLIP ViT-L/14 and OpenCLIP ViT-bigG/14, the refiner only the second. Their hidden
states before the last layer, without the final norm, are concatenated; the second also gives its projected text, from
the last layer. The denoiser is also conditioned on sizes, as numbers in this order:

    base     original height, original width, crop top, crop left, target height, target width
    refiner  original height, original width, crop top, crop left, aesthetic score

The original size is the image's, after EXIF rotation. The crop is the one used, in pixels of the resized image before
it is mirrored: mirroring changes no number. The target size is the bucket's. diffusers' and MindONE's examples do the
same, except that MindONE uses the size before rotation and diffusers draws the crop again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor

from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared import caption_pieces
from mezzotint.families.shared.folder_files import Configs
from mezzotint.families.shared.stable import StableFamily
from mezzotint.families.shared.stable_files import StableFiles
from mezzotint.settings.families.sdxl import SPEC
from mezzotint.stages import Batch, Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.layouts import sdxl
from mezzotint.weights.model_files import ConfigConstraint, EncodedSpec

AESTHETIC_SCORE, NEGATIVE_AESTHETIC_SCORE = 6.0, 2.5
"""The refiner's aesthetic score of an image and of the negative prompt, as in Stability's programs."""

_BASE_NUMBERS, _REFINER_NUMBERS = 6, 5


class Files(StableFiles):
    """The files of SDXL's base model or its refiner."""

    spec = SPEC
    layout = sdxl.LAYOUT
    pipelines: ClassVar[Mapping[str, str]] = {
        "edit": "StableDiffusionXLInstructPix2PixPipeline", "inpaint": "StableDiffusionXLInpaintPipeline",
    }  # fmt: skip
    fewest_layers = 2

    @classmethod
    def find_absent_parts(cls, folder: ModelFolder) -> Collection[str]:
        """See StableFiles: the refiner has no first text encoder, according to model_index.json."""
        first = folder.index.get("text_encoder")
        return ("text_encoder",) if not isinstance(first, list) or not any(first) else ()

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See StableFiles."""
        unet, pooled = configs["denoiser"], configs["text_encoder_2"].get("projection_dim", 512)
        widths = [int(configs[part].get("hidden_size", 512)) for part in SPEC.text_parts if part in configs]
        numbers = _BASE_NUMBERS if "text_encoder" in configs else _REFINER_NUMBERS
        vector = int(pooled) + numbers * int(unet.get("addition_time_embed_dim") or 0)
        yield "the denoiser is given more than text by", unet.get("addition_embed_type"), "text_time"
        yield "the denoiser takes text of width", unet.get("cross_attention_dim"), sum(widths)
        yield "the denoiser takes text and sizes of width", unet.get("projection_class_embeddings_input_dim"), vector

    def text_identity(self) -> str:
        """See ModelFiles."""
        return f"{super().text_identity()} clip_skip={self.settings.clip_skip}"

    def encoded_spec(self) -> EncodedSpec | None:
        """See ModelFiles: None for a refiner."""
        if "text_encoder" not in self.configs:
            return None
        factor, shift = self.scaling
        unet, second = self.configs["denoiser"], self.configs["text_encoder_2"]
        return EncodedSpec(
            channels=self._latent_channels,
            factor=factor,
            shift=shift,
            length=self.length("text_encoder"),
            width=int(unet["cross_attention_dim"]),
            pooled=int(second.get("projection_dim", 512)),
        )


class Family(StableFamily):
    """SDXL's base model, or its refiner: the one without a first text encoder."""

    spec = SPEC
    files = Files

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: states (B, 77, 2048) and pooled (B, 1280), for the refiner (B, 77, 1280), without a mask.

        Several pieces of a caption give more states. An empty caption is encoded like any other. The first tokenizer
        pads with its end token, the second with 0, as the encoders were trained.
        """
        texts = [self._encode_with(part, captions) for part in self.text_parts]
        return TextEmbedding(torch.cat([text.states for text in texts], dim=-1), pooled=texts[-1].pooled)

    def _encode_with(self, part: str, captions: Sequence[str]) -> TextEmbedding:
        encoder, config = self._part(part), self._configs[part]
        if not captions:
            empty = self._empty(part, self._lengths[part], int(config["hidden_size"]))
            return TextEmbedding(empty, pooled=self._empty(part, int(config.get("projection_dim", 512))))
        pieces = self._pieces_of_caption
        output = encoder(self._pieces(part, captions), output_hidden_states=True)
        states = caption_pieces.join(output.hidden_states[-(self._clip_skip + 2)], pieces)
        pooled = getattr(output, "text_embeds", None)  # of the first piece
        return TextEmbedding(states, pooled=None if pooled is None else pooled[::pieces])

    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """See ModelFamily: the text, and `vector` (B, 6) or (B, 5), the numbers in the order of the module's
        docstring."""
        sizes = batch or framing or self._default_framing(text)
        numbers = [sizes.original_size, sizes.crop_top_left]
        if "text_encoder" in self.text_parts:
            numbers.append(sizes.target_size)
        else:
            numbers.append(_scores(framing, len(text.states))[:, None])
        device = text.states.device
        vector = torch.cat([n.to(device, torch.float32, non_blocking=True) for n in numbers], dim=1)
        return Condition(text, vector=vector)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. Sizes are passed in float32, which represents every integer exactly, for any dtype of the
        denoiser."""
        unet = self._part("denoiser")
        text, pooled = condition.text, condition.text.pooled
        assert pooled is not None, "a text embedding of another family"
        assert condition.vector is not None, "a condition of another family"
        added = {"text_embeds": cast_like_parameters(pooled, unet), "time_ids": condition.vector}
        predicted = unet(
            self._model_input(noised, condition),
            noised.model_t,
            encoder_hidden_states=cast_like_parameters(text.states, unet),
            added_cond_kwargs=added,
            return_dict=False,
        )[0]
        return cast(Tensor, predicted)

    def _default_framing(self, text: TextEmbedding) -> Framing:
        """Uncropped images of the denoiser's native size."""
        sample = self._configs["denoiser"].get("sample_size") or 128
        sides = sample if isinstance(sample, (list, tuple)) else (sample, sample)
        size = torch.tensor([[side * self.grid.pixels for side in sides]]).expand(len(text.states), 2)
        return Framing(size, torch.zeros_like(size), size)


def _scores(framing: Framing | None, count: int) -> Tensor:
    """Aesthetic scores (B,), by default those of Stability's programs."""
    if framing is not None and framing.aesthetic_score is not None:
        return framing.aesthetic_score
    negative = framing.negative if framing is not None else None
    is_negative = torch.zeros(count, dtype=torch.bool) if negative is None else negative
    return torch.where(is_negative, NEGATIVE_AESTHETIC_SCORE, AESTHETIC_SCORE)
