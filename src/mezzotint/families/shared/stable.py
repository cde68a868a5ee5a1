"""What Stable Diffusion and SDXL share: parts by name, the autoencoder, the UNet's blocks, identities, export.

The networks are diffusers' UNet2DConditionModel and AutoencoderKL and transformers' CLIP text models; their files are
read by `weights`, by header first. What a family says to its denoiser is its own file's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from mezzotint import fault_injection
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError
from mezzotint.families.base import Grid, ModelFamily, like_parameters, sent, whole_state
from mezzotint.families.shared import new_words
from mezzotint.families.shared.new_words import NewWords
from mezzotint.families.shared.stable_files import StableFiles, require_layers
from mezzotint.weights.folder import scheduler_file
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.folder.tokenizer import tokenize, tokenize_padded
from mezzotint.weights.model_files import ModelFiles
from mezzotint.weights.single_file import known_layouts, writing
from mezzotint.weights.single_file.extras import drop_average, extras_of


class StableFamily(ModelFamily):
    """A latent-diffusion model with a UNet, an autoencoder and CLIP text encoders. `notes`: what was met in the files
    that the reader should know, in words."""

    files: ClassVar[type[StableFiles]]

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        assert isinstance(files, StableFiles)
        vae = files.configs["vae"]
        self.schedule = Schedule.from_config(files.scheduler)
        self.prediction = files.prediction
        self.grid = Grid(channels=int(vae.get("latent_channels", 4)), pixels=2 ** (len(vae["block_out_channels"]) - 1))
        self.notes = tuple(files.notes(parts))
        self.text_parts = files.text_parts
        self.zeros_for_empty = files.folder.index.get("force_zeros_for_empty_prompt") is True
        self._configs = files.configs
        self._lengths = {part: files.length(part) for part in files.text_parts}
        self._fewest_layers = files.fewest_layers
        self._open_tokenizer = files.tokenizer
        self._parts = dict(parts)
        self._clip_skip = files.settings.clip_skip
        self._scale, self._shift = files.scaling
        self._tokenizers: dict[str, Any] = {}
        self._words: NewWords | None = None

    def add_words(self, words: Mapping[str, str], vectors: int, rows: Mapping[str, Mapping[str, Tensor]]) -> None:
        """See ModelFamily. Raises WeightsError E1470, E1472."""
        encoders = [part for part in self.text_parts if part in self._parts]
        known = {part: self._part(part).get_input_embeddings().weight.detach() for part in encoders}
        for word, own in rows.items():
            _require_fitting(word, {part: tuple(one.shape) for part, one in own.items()}, known)
        counts = dict.fromkeys(words, vectors) | {word: len(next(iter(own.values()))) for word, own in rows.items()}
        begun: dict[str, list[Tensor]] = {part: [] for part in encoders}
        for part, table in known.items():
            for words_begun in words.values():
                tokens = new_words.tokens_of(self._tokenizer(part), words_begun)
                begun[part] += [table[[tokens[number % len(tokens)] for number in range(vectors)]]]
            begun[part] += [own[part].to(table) for own in rows.values()]
        added = NewWords(counts, {part: torch.cat(each) for part, each in begun.items()})
        for part in encoders:
            tokenizer = self._tokenizer(part)
            first = new_words.add_to_tokenizer(tokenizer, added, f"the tokenizer of {part}")
            new_words.put_on(self._part(part), part, added, first, tokenizer.eos_token_id)
        self._words = added
        self._parts = {**self._parts, "tokens": added}

    def rows_of_words(self, weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """See ModelFamily."""
        if self._words is None:
            return {}
        rows = {part: weights.get(f"tokens/{part}", own.detach()) for part, own in self._words.named_parameters()}
        return {word: self._words.rows_of(word, rows) for word in self._words.counts}

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily. Runs in the type and on the device of the VAE's parameters."""
        vae = self._part("vae")
        if not len(pixels):
            height, width = (side // self.grid.pixels for side in pixels.shape[-2:])
            return pixels.new_empty((0, 2 * self.grid.channels, height, width), dtype=torch.float32)
        with _as_it_is(vae):
            posterior = vae.encode(like_parameters(pixels, vae)).latent_dist
        mean, std = posterior.mean.float(), posterior.std.float()
        return torch.cat(((mean - self._shift) * self._scale, std * self._scale), dim=1)

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily. Runs in the type and on the device of the VAE's parameters."""
        vae = self._part("vae")
        raw = latents.float() / self._scale + self._shift
        with _as_it_is(vae):
            return cast(Tensor, vae.decode(like_parameters(raw, vae)).sample).float().clamp(-1.0, 1.0)

    def skip_layers(self, count: int) -> None:
        """See ModelFamily."""
        require_layers({part: self._configs[part] for part in self.text_parts}, count, self._fewest_layers)
        self._clip_skip = count

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """See ModelFamily: of the text encoder that loses most."""
        if not captions:
            return ()
        by_part = [[max(0, n - self._lengths[part]) for n in self._counts(part, captions)] for part in self.text_parts]
        return tuple(max(lost) for lost in zip(*by_part, strict=True))

    def token_counts(self, captions: Sequence[str]) -> tuple[tuple[int, ...], int]:
        """See ModelFamily: of the text encoder that reads fewest."""
        part = min(self.text_parts, key=self._lengths.__getitem__)
        return self._counts(part, captions), self._lengths[part]

    def _counts(self, part: str, captions: Sequence[str]) -> tuple[int, ...]:
        texts = self._written_out(captions)
        return tuple(map(len, tokenize(self._tokenizer(part), texts, verbose=False).input_ids))

    def blocks(self) -> Iterator[tuple[nn.Module, ...]]:
        """See ModelFamily: of the denoiser, each residual block with the attention beside it, as they are run."""
        unet = self._part("denoiser")
        for block in unet.down_blocks:
            yield from _pairs(block)
        first, *others = unet.mid_block.resnets
        yield (first,)
        yield from zip(getattr(unet.mid_block, "attentions", ()), others, strict=True)
        for block in unet.up_blocks:
            yield from _pairs(block)

    def export(
        self,
        folder: Path,
        files: ModelFiles,
        *,
        weights: Mapping[str, Tensor],
        dtype: DTypeName,
        schedule: Schedule,
        trained_form: Parameterization,
    ) -> None:
        """See ModelFamily. Opens with DiffusionPipeline.from_pretrained(folder, local_files_only=True).

        Raises WeightsError E1410 when the folder is there, E1403 when a weight is not finite, StorageError E1701.
        """
        assert isinstance(files, StableFiles)
        fault_injection.reach("export.begin")
        config = scheduler_file.corrected(
            files.scheduler,
            prediction=trained_form.prediction,
            zero_terminal=schedule.zero_terminal,
            sigma_data=trained_form.sigma_data,
            tells_sigma=trained_form.tells_sigma,
        )
        replaced: dict[str, Replaced] = {}
        for part in files.parts:
            is_new = files.is_drawn(part) or any(name.startswith(f"{part}/") for name in weights)
            new = self._replaced(files, part, weights) if is_new else files.kept(part)
            if new is not None:
                replaced[files.component(part)] = new
        single = files.single if files.settings.weights == "files" else None
        besides = extras_of(single).write if single is not None else drop_average
        write_model(folder, files.folder, replaced, scheduler=config, dtype=dtype, besides=besides)
        fault_injection.reach("export.renamed")

    def export_parts(
        self, file: Path, parts: Sequence[str], files: ModelFiles, *, weights: Mapping[str, Tensor], dtype: DTypeName
    ) -> None:
        """See ModelFamily. Raises WeightsError E1403, E1416, StorageError E1701."""
        assert isinstance(files, StableFiles)
        fault_injection.reach("export.begin")
        components = [files.component(part) for part in files.parts]
        layout = known_layouts.for_components(components, file.suffix)
        assert layout is not None, components
        replaced = {files.component(part): self._replaced(files, part, weights) for part in parts}
        writing.write_components(file, layout, replaced, dtype)
        fault_injection.reach("export.renamed")

    def _tokenizer(self, part: str) -> Any:
        if part not in self._tokenizers:
            self._tokenizers[part] = self._open_tokenizer(part)
        return self._tokenizers[part]

    def _tokens(self, part: str, captions: Sequence[str]) -> Tensor:
        """(B, L) int64 on the device of a text encoder; what does not fit is cut off."""
        texts = self._written_out(captions)
        ids, _ = tokenize_padded(self._tokenizer(part), texts, length=self._lengths[part])
        return sent(ids, next(self._part(part).parameters()).device)

    def _written_out(self, captions: Sequence[str]) -> list[str]:
        return [self._words.in_text(caption) for caption in captions] if self._words else list(captions)

    def _replaced(self, files: StableFiles, part: str, weights: Mapping[str, Tensor]) -> Replaced:
        state = whole_state(files, self._parts, weights, part)
        return Replaced(files.spec.networks[part], state, files.configs[part])


def _require_fitting(word: str, shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, Tensor]) -> None:
    """Raises WeightsError E1472 where a word's rows are for other text encoders than these. known: token tables by
    encoder."""
    if shapes.keys() != known.keys() or any(shapes[part][1] != table.shape[1] for part, table in known.items()):
        of_file = ", ".join(f"{part} of width {shape[1]}" for part, shape in shapes.items())
        of_model = ", ".join(f"{part} of width {table.shape[1]}" for part, table in known.items())
        raise WeightsError(
            f"model.tokens.files: {word} was learned for {of_file}, and this model has {of_model}; it belongs to "
            "another kind of model",
            code="E1472",
        )


def _as_it_is(module: nn.Module) -> torch.autocast:
    """Within, a network computes in the type of its parameters, also where a denoiser beside it is under autocast."""
    return torch.autocast(next(module.parameters()).device.type, enabled=False)


def _pairs(block: Any) -> Iterator[tuple[nn.Module, ...]]:
    """A block's residual blocks, each with the attention that follows it, where there is any."""
    attentions = getattr(block, "attentions", None)
    yield from zip(block.resnets, attentions, strict=True) if attentions else ((resnet,) for resnet in block.resnets)
