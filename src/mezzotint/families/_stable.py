"""What Stable Diffusion and SDXL share: parts by name, the autoencoder, the UNet's blocks, identities, export.

The networks are diffusers' UNet2DConditionModel and AutoencoderKL and transformers' CLIP text models; their files are
read by `weights`, by header first. What a family says to its denoiser is its own file's business.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn

from mezzotint import fault_injection
from mezzotint.diffusion.forms import Form
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families._stable_files import Kin, Source, of_part, open_source, open_tokenizer, require_layers
from mezzotint.families.base import Grid, ModelFamily, Prediction
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.weights.files import fingerprint, mindspore
from mezzotint.weights.folder import scheduler_file
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.single_file import known_layouts, partial
from mezzotint.weights.single_file.extras import drop_average, remains_of


class StableFamily(ModelFamily):
    """A latent-diffusion model with a UNet, an autoencoder and CLIP text encoders. `notes`: what was met in the files
    that the reader should know, in words."""

    kin: ClassVar[Kin]
    """What the family's models are made of."""

    def __init__(
        self, source: Source, parts: Mapping[str, nn.Module], *, prediction: Prediction, clip_skip: int
    ) -> None:
        vae = source.configs["vae"]
        self.schedule = Schedule.from_config(source.scheduler)
        self.prediction = prediction
        self.grid = Grid(channels=int(vae.get("latent_channels", 4)), pixels=2 ** (len(vae["block_out_channels"]) - 1))
        self.notes = tuple(source.notes(parts))
        self._source = source
        self.text_parts = source.text_parts
        self.zeros_for_empty = source.folder.index.get("force_zeros_for_empty_prompt") is True
        self._parts = dict(parts)
        self._clip_skip = clip_skip
        self._scale, self._shift = source.scaling
        self._tokenizers: dict[str, Any] = {}

    @classmethod
    def load(cls, settings: ModelSettings, only: Collection[str] | None = None, *, seed: int = 0) -> Self:
        """See ModelFamily. Half-precision files are widened. Raises WeightsError E1401 to E1415."""
        source = open_source(cls.kin, settings, seed)
        assert only is None or set(only) <= cls.kin.components.keys(), only
        parts = {part: source.network(part) for part in source.parts if only is None or part in only}
        return cls(source, parts, prediction=source.prediction(settings), clip_skip=settings.clip_skip)

    @classmethod
    def _narrowed(cls, source: Source, narrower: Mapping[str, Mapping[str, Any]]) -> Self:
        """A family with random weights, of narrowed configurations."""
        configs = {part: config | dict(narrower.get(part, {})) for part, config in source.configs.items()}
        narrow = replace(source, configs=configs)
        parts = {part: narrow.network(part) for part in narrow.parts}
        return cls(narrow, parts, prediction="epsilon", clip_skip=0)

    def parts(self) -> Mapping[str, nn.Module]:
        """See ModelFamily: of those that the model has, those that were loaded."""
        return self._parts

    @classmethod
    def fingerprint(cls, settings: ModelSettings, part: str, *, seed: int = 0) -> str:
        """See ModelFamily. Of random weights: of the configuration, the seed and torch's version. Also of "schedule",
        what the scheduler's file means to training, and of "tokenizer", all of them together."""
        source = open_source(cls.kin, settings, seed)
        if part == "schedule":
            table = Schedule.from_config(source.scheduler).alpha_bar.numpy().tobytes()
            return fingerprint.of_values({"alpha_bar": table.hex(), "prediction": source.prediction(settings)})
        if part != "tokenizer":
            return source.fingerprint(part)
        found = [source.tokenizer_fingerprint(encoder) for encoder in source.text_parts]
        return found[0] if len(found) == 1 else fingerprint.of_values(dict(zip(source.text_parts, found, strict=True)))

    @classmethod
    def media_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """See ModelFamily."""
        source = open_source(cls.kin, settings, seed)
        scale, shift = source.scaling
        return f"sd-media-1 vae={source.fingerprint('vae')} scale={scale!r} shift={shift!r} tiling=off"

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
        require_layers(self._source, count)
        self._clip_skip = count

    def lost_tokens(self, captions: Sequence[str]) -> tuple[int, ...]:
        """See ModelFamily: of the text encoder that loses most."""
        if not captions:
            return ()
        by_part = []
        for part in self._source.text_parts:
            room = self._source.length(part)
            ids = self._tokenizer(part)(list(captions), verbose=False).input_ids
            by_part.append([max(0, len(i) - room) for i in ids])
        return tuple(max(lost) for lost in zip(*by_part, strict=True))

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
        *,
        settings: ModelSettings,
        weights: Mapping[str, Tensor],
        dtype: Literal["fp32", "fp16", "bf16"],
        schedule: Schedule,
        prediction: Prediction,
    ) -> None:
        """See ModelFamily. Opens with DiffusionPipeline.from_pretrained(folder, local_files_only=True).

        Raises WeightsError E1410 when the folder is there, E1403 when a weight is not finite, StorageError E1701.
        """
        fault_injection.reach("export.begin")
        source = self._source
        taught = self.taught or Form(prediction)
        config = scheduler_file.corrected(
            source.scheduler,
            prediction=prediction,
            zero_terminal=schedule.zero_terminal,
            sigma_data=taught.sigma_data,
            tells_sigma=taught.tells_sigma,
        )
        replaced: dict[str, Replaced] = {}
        for part in source.parts:
            trained = of_part(weights, part)
            new = self._replaced(part, trained) if trained or source.is_drawn(part) else source.kept(part)
            if new is not None:
                replaced[source.component(part)] = new
        single = source.single if source.weights == "files" else None
        besides = remains_of(single).write if single is not None else drop_average
        write_model(folder, source.folder, replaced, scheduler=config, dtype=dtype, besides=besides)
        fault_injection.reach("export.renamed")

    def export_parts(
        self,
        file: Path,
        parts: Sequence[str],
        *,
        weights: Mapping[str, Tensor],
        dtype: Literal["fp32", "fp16", "bf16"],
    ) -> None:
        """See ModelFamily. Raises WeightsError E1403, E1416, StorageError E1701."""
        fault_injection.reach("export.begin")
        source = self._source
        components = [source.component(part) for part in source.parts]
        layout = known_layouts.for_components(components, "mindone" if file.suffix == mindspore.SUFFIX else "")
        assert layout is not None, components
        replaced = {source.component(part): self._replaced(part, of_part(weights, part)) for part in parts}
        partial.write(file, layout, replaced, dtype)
        fault_injection.reach("export.renamed")

    def _tokenizer(self, part: str) -> Any:
        if part not in self._tokenizers:
            self._tokenizers[part] = open_tokenizer(self._source, part)
        return self._tokenizers[part]

    def _tokens(self, part: str, captions: Sequence[str]) -> Tensor:
        """(B, L) int64 on the device of a text encoder; what does not fit is cut off."""
        told = self._tokenizer(part)(
            list(captions),
            padding="max_length",
            max_length=self._source.length(part),
            truncation=True,
            return_tensors="pt",
        )
        return cast(Tensor, told.input_ids).to(next(self._part(part).parameters()).device)

    def _replaced(self, part: str, trained: Mapping[str, Tensor]) -> Replaced:
        source = self._source
        module = self._parts.get(part) or source.network(part)
        base = module.state_dict()
        if any(n not in trained and t.is_floating_point() and t.dtype != torch.float32 for n, t in base.items()):
            base = source.network(part).state_dict()  # what is not trained keeps every bit of the file
        assert trained.keys() <= base.keys(), sorted(trained.keys() - base.keys())
        return Replaced(source.kin.networks[part], {**base, **trained}, source.configs[part])

    def _part(self, name: str) -> Any:
        assert name in self._parts, f"{name} was not loaded"
        return self._parts[name]


def _as_it_is(module: nn.Module) -> torch.autocast:
    """Within, a network computes in the type of its parameters, also where a denoiser beside it is under autocast."""
    return torch.autocast(next(module.parameters()).device.type, enabled=False)


def like_parameters(tensor: Tensor, module: nn.Module) -> Tensor:
    """The tensor on the device and in the type of a network's parameters."""
    like = next(module.parameters())
    return tensor.to(like.device, like.dtype)


def _pairs(block: Any) -> Iterator[tuple[nn.Module, ...]]:
    """A block's residual blocks, each with the attention that follows it, where there is any."""
    attentions = getattr(block, "attentions", None)
    yield from zip(block.resnets, attentions, strict=True) if attentions else ((resnet,) for resnet in block.resnets)
