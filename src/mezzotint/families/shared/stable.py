"""What Stable Diffusion and SDXL share: learned tokens, clip skip, the UNet's blocks, export of parts. The networks are
diffusers' UNet2DConditionModel and AutoencoderKL and transformers' CLIP text models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mezzotint import fault_injection
from mezzotint.diffusion import inpainting
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared import caption_pieces, learned_tokens
from mezzotint.families.shared.folder_family import FolderFamily
from mezzotint.families.shared.folder_files import FolderFiles
from mezzotint.families.shared.learned_tokens import LearnedTokens
from mezzotint.families.shared.stable_files import StableFiles, require_layers
from mezzotint.stages import Condition, Noised
from mezzotint.weights.folder import scheduler_file
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.model_files import ModelFiles
from mezzotint.weights.single_file import known_layouts, writing


class StableFamily(FolderFamily):
    """A latent-diffusion model with a UNet, an AutoencoderKL and CLIP text encoders."""

    files: ClassVar[type[StableFiles]]
    every_encoder_counts = True

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, StableFiles)
        self.zeros_for_empty = files.folder.index.get("force_zeros_for_empty_prompt") is True
        self._fewest_layers = files.fewest_layers
        self._clip_skip = files.settings.clip_skip
        self._pieces_of_caption = files.pieces
        self.guides_images = bool(files.condition_names)
        self.inpaints = files.inpaints
        self._latent_scale = files.scaling[0]
        self._learned_tokens: LearnedTokens | None = None

    def schedule_of(self, files: FolderFiles) -> Schedule:
        """See FolderFamily."""
        return Schedule.from_config(files.scheduler)

    def add_learned_tokens(
        self, initial_words: Mapping[str, str], vectors: int, rows: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """See ModelFamily. Raises WeightsError E1470, E1472."""
        encoders = [part for part in self.text_parts if part in self._parts]
        tables = {part: self._part(part).get_input_embeddings().weight.detach() for part in encoders}
        for word, values in rows.items():
            _require_fitting(word, {part: tuple(tensor.shape) for part, tensor in values.items()}, tables)
        counts = dict.fromkeys(initial_words, vectors) | {
            word: len(next(iter(values.values()))) for word, values in rows.items()
        }
        initial: dict[str, list[Tensor]] = {part: [] for part in encoders}
        for part, table in tables.items():
            for text in initial_words.values():
                tokens = learned_tokens.tokens_of(self._tokenizer(part), text)
                initial[part] += [table[[tokens[number % len(tokens)] for number in range(vectors)]]]
            initial[part] += [values[part].to(table) for values in rows.values()]
        added = LearnedTokens(counts, {part: torch.cat(tensors) for part, tensors in initial.items()})
        for part in encoders:
            tokenizer = self._tokenizer(part)
            first = learned_tokens.add_to_tokenizer(tokenizer, added, f"the tokenizer of {part}")
            learned_tokens.attach_to_encoder(self._part(part), part, added, first, tokenizer.eos_token_id)
        self._learned_tokens = added
        self._parts = {**self._parts, "tokens": added}

    def learned_embeddings(self, weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """See ModelFamily."""
        if self._learned_tokens is None:
            return {}
        rows = {
            part: weights.get(f"tokens/{part}", row.detach()) for part, row in self._learned_tokens.named_parameters()
        }
        return {word: self._learned_tokens.rows_of(word, rows) for word in self._learned_tokens.counts}

    def skip_layers(self, count: int) -> None:
        """See ModelFamily."""
        require_layers({part: self._configs[part] for part in self.text_parts}, count, self._fewest_layers)
        self._clip_skip = count

    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """See ModelFamily: each residual block of the denoiser with its attention, in the order of execution."""
        unet = self._part("denoiser")
        for block in unet.down_blocks:
            yield from _pairs(block)
        first, *others = unet.mid_block.resnets
        yield (first,)
        yield from zip(getattr(unet.mid_block, "attentions", ()), others, strict=True)
        for block in unet.up_blocks:
            yield from _pairs(block)

    def _scheduler_config(
        self, files: FolderFiles, schedule: Schedule, trained_form: Parameterization
    ) -> Mapping[str, Any]:
        """See FolderFamily: corrected where training changed it."""
        return scheduler_file.correct_config(
            files.scheduler,
            prediction=trained_form.prediction,
            zero_terminal=schedule.zero_terminal,
            sigma_data=trained_form.sigma_data,
            takes_log_sigma=trained_form.takes_log_sigma,
        )

    def export_parts(
        self, file: Path, parts: Sequence[str], files: ModelFiles, *, weights: Mapping[str, Tensor], dtype: DTypeName
    ) -> None:
        """See ModelFamily. Raises WeightsError E1403, E1406, E1416, StorageError E1701."""
        assert isinstance(files, StableFiles)
        fault_injection.reach("export.begin")
        components = [files.component(part) for part in files.parts]
        layout = known_layouts.require_for(components, file, files.settings.path)
        replaced = {files.component(part): self._replacement(files, part, weights) for part in parts}
        writing.write_components(file, layout, replaced, dtype)
        fault_injection.reach("export.renamed")

    def _model_input(self, noised: Noised, condition: Condition) -> Tensor:
        """The denoiser's input in its dtype: the noisy latents, and for a model that edits the image before the edit,
        as the autoencoder gives it, unscaled; zeros without one. For a model that inpaints the region to fill, and the
        scaled latents of the image without it; without them all is to be filled."""
        unet, latents = self._part("denoiser"), noised.model_input
        more: list[Tensor] = []
        if self.inpaints:
            mask = condition.images.get(inpainting.MASK)
            masked_image = condition.images.get(inpainting.MASKED_IMAGE)
            more = [
                torch.ones_like(latents[:, :1]) if mask is None else inpainting.take_top_left(mask, latents),
                torch.zeros_like(latents) if masked_image is None else masked_image,
            ]
        elif self.condition_names:
            source = condition.images.get("source")
            more = [torch.zeros_like(latents) if source is None else source / self._latent_scale]
        inputs = [cast_like_parameters(one, unet) for one in (latents, *more)]
        return torch.cat(inputs, dim=1) if more else inputs[0]

    def _pieces(self, part: str, captions: Sequence[str]) -> Tensor:
        """The tokens (B n, L) of captions for a text encoder, in n pieces each, see `model.caption_tokens`."""
        ids = self._tokens(part, captions)[0]
        if self._pieces_of_caption == 1:
            return ids
        tokenizer = self._tokenizer(part)
        return caption_pieces.split(
            ids, pieces=self._pieces_of_caption, end=tokenizer.eos_token_id, pad=tokenizer.pad_token_id
        )

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        return (
            [self._learned_tokens.expand_caption(caption) for caption in captions]
            if self._learned_tokens
            else list(captions)
        )


def _require_fitting(word: str, shapes: Mapping[str, tuple[int, ...]], tables: Mapping[str, Tensor]) -> None:
    """Raises WeightsError E1472 if a word's embeddings are for other text encoders. tables: embedding tables by
    encoder."""
    if shapes.keys() != tables.keys() or any(shapes[part][1] != table.shape[1] for part, table in tables.items()):
        of_file = ", ".join(f"{part} of width {shape[1]}" for part, shape in shapes.items())
        of_model = ", ".join(f"{part} of width {table.shape[1]}" for part, table in tables.items())
        raise WeightsError(
            f"model.tokens.files: {word} was learned for {of_file}, but this model has {of_model}; use it with a "
            "model of its kind",
            code="E1472",
        )


def _pairs(block: Any) -> Iterator[tuple[nn.Module, ...]]:
    """A block's residual blocks, each with the attention that follows it, if any."""
    attentions = getattr(block, "attentions", None)
    yield from zip(block.resnets, attentions, strict=True) if attentions else ((resnet,) for resnet in block.resnets)
