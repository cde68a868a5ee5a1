"""What families with models in diffusers' folder layout share: parts by name, the autoencoder with its scaling,
tokenization, export. The networks are diffusers' and transformers'. The denoiser's inputs are in each family's file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from mezzotint import fault_injection
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import Grid, ModelFamily, cast_like_parameters, full_state, to_device
from mezzotint.families.shared.folder_files import FolderFiles
from mezzotint.weights.folder.components import DTypeName
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.folder.tokenizer import tokenize, tokenize_padded
from mezzotint.weights.model_files import ModelFiles


class FolderFamily(ModelFamily):
    """A model with an autoencoder and text encoders."""

    files: ClassVar[type[FolderFiles]]
    every_encoder_counts: ClassVar[bool] = False
    """Whether a token counts as lost when any text encoder truncates it, or only when all do."""

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        assert isinstance(files, FolderFiles)
        self.schedule = self.schedule_of(files)
        self.prediction = files.prediction
        self.grid = self.grid_of(files)
        self.notes = tuple(files.notes(parts))
        self.text_parts = files.text_parts
        self.condition_names = files.condition_names
        self.min_conditions = files.min_conditions
        self.text_images = files.text_images
        self.animates = files.animates
        self._configs = files.configs
        self._lengths = {part: files.length(part) for part in files.text_parts}
        self._open_tokenizer = files.tokenizer
        self._parts = dict(parts)
        self._scale, self._shift = files.scaling
        self._tokenizers: dict[str, Any] = {}

    @abstractmethod
    def schedule_of(self, files: FolderFiles) -> Schedule:
        """The noise schedule of the scheduler's configuration."""

    def grid_of(self, files: FolderFiles) -> Grid:
        """The latents of an AutoencoderKL."""
        vae = files.configs["vae"]
        return Grid(channels=int(vae.get("latent_channels", 4)), pixels=2 ** (len(vae["block_out_channels"]) - 1))

    # --- media ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily. Runs in the dtype and on the device of the VAE's parameters."""
        vae = self._part("vae")
        if not len(pixels):
            height, width = (side // self.grid.pixels for side in pixels.shape[-2:])
            return pixels.new_empty((0, 2 * self.grid.channels, height, width), dtype=torch.float32)
        with without_autocast(vae):
            posterior = vae.encode(cast_like_parameters(self.to_vae(pixels), vae)).latent_dist
        return self.scale_moments(self.from_vae(posterior.mean.float()), self.from_vae(posterior.std.float()))

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily. Runs in the dtype and on the device of the VAE's parameters."""
        vae = self._part("vae")
        with without_autocast(vae):
            decoded = vae.decode(cast_like_parameters(self.to_vae(self.unscale_latents(latents.float())), vae)).sample
        return self.from_vae(cast(Tensor, decoded)).float().clamp(-1.0, 1.0)

    def scale_moments(self, mean: Tensor, std: Tensor) -> Tensor:
        """The VAE's posterior mean and deviation → the model's moments, concatenated along the channels."""
        return torch.cat(((mean - self._shift) * self._scale, std * self._scale), dim=1)

    def unscale_latents(self, latents: Tensor) -> Tensor:
        """The model's latents → the VAE's."""
        return latents / self._scale + self._shift

    def to_vae(self, pixels: Tensor) -> Tensor:
        """Images, or their latents, in the shape that the VAE takes."""
        return pixels

    def from_vae(self, values: Tensor) -> Tensor:
        """The inverse of `to_vae`."""
        return values

    # --- text -------------------------------------------------------------------------------------------------------

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """See ModelFamily: for the text encoder that truncates most with `every_encoder_counts`, otherwise least."""
        if not captions or not self.text_parts:
            return tuple(0 for _ in captions)
        choose = max if self.every_encoder_counts else min
        by_part = [[max(0, n - self._lengths[part]) for n in self._counts(part, captions)] for part in self.text_parts]
        return tuple(choose(lost) for lost in zip(*by_part, strict=True))

    def token_counts(self, captions: Sequence[str]) -> tuple[tuple[int, ...], int]:
        """See ModelFamily: for the text encoder with the lowest limit with `every_encoder_counts`, otherwise the
        highest."""
        if not self.text_parts:
            return (), 0
        choose = min if self.every_encoder_counts else max
        part = choose(self.text_parts, key=self._lengths.__getitem__)
        return self._counts(part, captions), self._lengths[part]

    def _counts(self, part: str, captions: Sequence[str]) -> tuple[int, ...]:
        texts = self._apply_template(part, captions)
        return tuple(map(len, tokenize(self._tokenizer(part), texts, verbose=False).input_ids))

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        """Captions in the form that a text encoder's tokenizer takes."""
        return list(captions)

    def _tokenizer(self, part: str) -> Any:
        if part not in self._tokenizers:
            self._tokenizers[part] = self._open_tokenizer(part)
        return self._tokenizers[part]

    def _tokens(self, part: str, captions: Sequence[str], before: int = 0) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """Tokens and their mask, (B, L) int64 on the device of a text encoder, and the number of tokens of each text;
        long texts are truncated. before: tokens of the template before the caption, which are not counted. Raises
        WeightsError E1409."""
        ids, mask = self._tokenize(part, captions, before)
        device = next(self._part(part).parameters()).device
        return to_device(ids, device), to_device(mask, device), count_tokens(mask[:, before:])

    def _tokenize(self, part: str, captions: Sequence[str], before: int) -> tuple[Tensor, Tensor]:
        """Tokens and their mask, (B, L) int64 on the host."""
        texts = self._apply_template(part, captions)
        return tokenize_padded(self._tokenizer(part), texts, length=self._lengths[part], start=before)

    def _empty(self, part: str, *shape: int) -> Tensor:
        """An empty tensor for no captions, of the dtype and on the device of a text encoder."""
        return cast(Tensor, next(self._part(part).parameters()).new_empty((0, *shape)))

    # --- export -----------------------------------------------------------------------------------------------------

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

        Raises WeightsError E1410 if the folder exists, E1403 if a weight is not finite, StorageError E1701.
        """
        assert isinstance(files, FolderFiles)
        fault_injection.reach("export.begin")
        replaced: dict[str, Replaced] = {}
        for part in files.parts:
            is_new = files.is_drawn(part) or any(name.startswith(f"{part}/") for name in weights)
            new = self._replacement(files, part, weights) if is_new else files.replacement_of(part)
            if new is not None:
                replaced[files.spec.folders[part]] = new
        scheduler = self._scheduler_config(files, schedule, trained_form)
        write_model(folder, files.folder, replaced, scheduler=scheduler, dtype=dtype, besides=files.write_extras)
        fault_injection.reach("export.renamed")

    def _scheduler_config(
        self, files: FolderFiles, schedule: Schedule, trained_form: Parameterization
    ) -> Mapping[str, Any]:
        """The scheduler's configuration of an exported model."""
        return files.scheduler

    def _replacement(self, files: FolderFiles, part: str, weights: Mapping[str, Tensor]) -> Replaced:
        state = full_state(files, self._parts, weights, part)
        return Replaced(files.networks[part], state, files.configs[part])


def without_autocast(module: nn.Module) -> torch.autocast:
    """Context in which a network computes in the dtype of its parameters, even while the denoiser is under autocast."""
    return torch.autocast(next(module.parameters()).device.type, enabled=False)


def keeping_second_to_last(encoder: Any, ids: Tensor, **inputs: Any) -> tuple[Any, Tensor]:
    """The output of a text encoder of transformers, and the hidden states (B, L, D) that its last layer gets; those of
    other layers are not kept."""
    index = encoder.config.num_hidden_layers - 1  # from the start: transformers before 5.23 has no negative ones
    output = encoder(input_ids=ids, **inputs, output_hidden_states=[index])
    return output, output.hidden_states[index]


def count_tokens(mask: Tensor) -> tuple[int, ...]:
    """The number of tokens of each text, from a mask (B, L); L for fake tensors."""
    if isinstance(mask, FakeTensor):
        return (mask.shape[1],) * len(mask)
    return tuple(map(int, mask.sum(1).tolist()))
