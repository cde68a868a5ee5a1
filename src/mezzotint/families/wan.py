"""Wan 2.1 and 2.2 (arXiv:2503.20314), text to video, read from diffusers folders, written as folders.

A caption is encoded by UMT5 with its mask, and zeros replace padding; the denoiser takes no mask. A clip of n frames
has (n − 1)/4 + 1 latent frames; an image is a clip of one frame.
"""

from __future__ import annotations

import html
import importlib.metadata
import importlib.util
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.errors import WeightsError
from mezzotint.families.base import Grid, cast_like_parameters, to_device
from mezzotint.families.shared.flow import ChannelStatistics, Standardized
from mezzotint.families.shared.flow_clips import ClipFamily, as_clips, select_samples
from mezzotint.families.shared.flow_files import FlowFiles
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.families.shared.folder_files import Configs, FolderFiles
from mezzotint.settings.families.base import is_denoiser
from mezzotint.settings.families.wan import SPEC, WanSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.folder import t5
from mezzotint.weights.folder.model_folder import ModelFolder
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file import original as originals
from mezzotint.weights.single_file.original import DENOISER, FilePart, Renames
from mezzotint.weights.single_file.standalone import StandalonePart

_UMT5 = "text_encoder"
_LOW = "denoiser_2"
"""Wan 2.2 A14B's low-noise denoiser; `denoiser` is then the high-noise one."""

_ORIGINAL: Renames = (
    (r"^condition_embedder\.time_embedder\.linear_1\.", "time_embedding.0."),
    (r"^condition_embedder\.time_embedder\.linear_2\.", "time_embedding.2."),
    (r"^condition_embedder\.text_embedder\.linear_1\.", "text_embedding.0."),
    (r"^condition_embedder\.text_embedder\.linear_2\.", "text_embedding.2."),
    (r"^condition_embedder\.time_proj\.", "time_projection.1."),
    (r"^scale_shift_table$", "head.modulation"),
    (r"\.scale_shift_table$", ".modulation"),
    (r"^proj_out\.", "head.head."),
    (r"\.attn1\.", ".self_attn."),
    (r"\.attn2\.", ".cross_attn."),
    (r"\.to_([qkv])\.", r".\1."),
    (r"\.to_out\.0\.", ".o."),
    (r"\.ffn\.net\.0\.proj\.", ".ffn.0."),
    (r"\.ffn\.net\.2\.", ".ffn.2."),
    (r"\.norm2\.", ".norm3."),
)
"""The denoiser's tensor names in original Wan checkpoints."""


class Files(FlowFiles):
    """The files of Wan."""

    spec = SPEC
    pipelines = ("WanPipeline",)
    renames = _ORIGINAL
    refused: ClassVar = {"WanImageToVideoPipeline": "an image-to-video model"}

    @classmethod
    def find_absent_parts(cls, folder: ModelFolder) -> Collection[str]:
        """See FlowFiles: the second denoiser, except in Wan 2.2 A14B."""
        second = folder.index.get("transformer_2")
        return () if isinstance(second, list) and any(second) else (_LOW,)

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Files:
        """See FlowFiles. Raises WeightsError E1222 for a model with two denoisers and no valid boundary between
        them."""
        files = super().of(settings, seed)
        if _LOW in files.configs and not 0.0 < files.boundary < 1.0:
            raise WeightsError(
                f"{files.root}: has two denoisers, but boundary_ratio in model_index.json, the lowest level of the "
                f"first, is {files.folder.index.get('boundary_ratio')!r}; it is .875 for Wan 2.2 T2V A14B",
                code="E1222",
            )
        return files._with_low_noise()

    def _with_low_noise(self) -> Files:
        """The same with the second denoiser's file, if the recipe names one. Raises WeightsError E1401, E1402, E1478,
        and E1481 for a model with one denoiser."""
        path = self.settings.get_section(WanSettings).low_noise
        if path is None or self.settings.weights == "random":
            return self
        if "high_noise" in path.name and "low_noise" in self.settings.path.name:
            raise WeightsError(
                f"model.wan.low_noise: by their names {path} is the high-noise file and model.path the low-noise file; "
                "write model.path=HIGH_NOISE_FILE model.wan.low_noise=LOW_NOISE_FILE",
                code="E1478",
            )
        if _LOW in self.standalone:  # from the folder next to a file
            return self
        if _LOW not in self.configs:
            raise WeightsError(
                f"{self.root}: has one denoiser, but model.wan.low_noise names the second denoiser of Wan 2.2 A14B; "
                "remove it, or write model.config=FOLDER, a folder of Wan 2.2 T2V A14B",
                code="E1481",
            )
        network, config = self.spec.networks[_LOW], self.configs[_LOW]
        part = FilePart(DENOISER), network, config, self.shapes(_LOW)
        stored = originals.open_original(path, {_LOW: part}, model_name=self.spec.label).open_part(_LOW)
        return self.with_standalone({_LOW: StandalonePart(path, path, stored, config, self.where(_LOW))})

    @classmethod
    def parts_in_file(cls, settings: ModelSettings) -> Mapping[str, FilePart]:
        """See FlowFiles: of two denoisers the trained one, unless each has its file."""
        is_second = settings.train == (_LOW,) and settings.get_section(WanSettings).low_noise is None
        return {_LOW if is_second else "denoiser": FilePart(DENOISER)}

    @property
    def boundary(self) -> float:
        """The lowest σ of the first of two denoisers; the second is used below it. 0 for a model with one."""
        ratio = self.folder.index.get("boundary_ratio")
        return float(ratio) if isinstance(ratio, (int, float)) and _LOW in self.configs else 0.0

    @classmethod
    def constraints(cls, configs: Configs) -> Iterator[ConfigConstraint]:
        """See FlowFiles."""
        denoiser = configs["denoiser"]
        yield "the denoiser takes latents of channels", denoiser.get("in_channels", 16), configs["vae"].get("z_dim", 16)
        yield "the denoiser takes text of width", denoiser.get("text_dim"), configs[_UMT5].get("d_model")
        if _LOW in configs:
            sizes = ("in_channels", "out_channels", "text_dim", "patch_size")
            one, two = ([config.get(size) for size in sizes] for config in (denoiser, configs[_LOW]))
            yield "the two denoisers take", one, two

    @property
    def by_token(self) -> bool:
        """Whether the denoiser takes a level per token, which first-frame conditioning needs."""
        return self.folder.index.get("expand_timesteps") is True

    def require_trainable(self) -> None:
        """See ModelFiles: the trained denoiser exists, and first-frame conditioning is supported if it is used."""
        if _LOW in self.settings.train and _LOW not in self.configs:
            raise WeightsError(
                f"{self.root}: has one denoiser, but model.train names denoiser_2, the second of Wan 2.2 A14B; write "
                "model.train=[denoiser]",
                code="E1481",
            )
        if self.settings.get_section(WanSettings).first_frame_prob and not self.by_token:
            raise WeightsError(
                f"{self.root}: takes one level of noise for a whole clip (expand_timesteps is not in "
                "model_index.json), "
                "which rules out first-frame conditioning; remove model.wan.first_frame_prob, or use Wan 2.2 TI2V 5B",
                code="E1480",
            )

    def length(self, part: str) -> int:
        """See FlowFiles."""
        return self.settings.get_section(WanSettings).text_tokens

    def text_shape(self) -> tuple[int, int]:
        """See ModelFiles."""
        return self.length(_UMT5), int(self.configs["denoiser"]["text_dim"])

    def text_identity(self) -> str:
        """See FlowFiles, with the version of ftfy, which repairs captions."""
        ftfy = importlib.metadata.version("ftfy") if importlib.util.find_spec("ftfy") else "no"
        return f"{super().text_identity()} ftfy={ftfy}"


class Family(Standardized, ClipFamily):
    """Wan: the denoiser patchifies latents itself, two by two."""

    spec = SPEC
    files = Files
    block_lists = ("blocks",)

    def __init__(self, files: ModelFiles, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(files, parts)
        assert isinstance(files, Files)
        vae = files.configs["vae"]
        self._statistics = ChannelStatistics(vae)
        self.takes_first_frame = files.by_token
        self.first_frame_prob = files.settings.get_section(WanSettings).first_frame_prob
        self._boundary = files.boundary
        trained = [part for part in files.settings.train if is_denoiser(part)]
        if self._boundary and len(trained) == 1:
            span = (0.0, self._boundary) if trained == [_LOW] else (self._boundary, 1.0)
            self.schedule = replace(cast(FlowSchedule, self.schedule), span=span)

    def grid_of(self, files: FolderFiles) -> Grid:
        """See FlowFamily."""
        vae = files.configs["vae"]
        pixels, frames = int(vae.get("scale_factor_spatial") or 8), int(vae.get("scale_factor_temporal") or 4)
        return Grid(int(vae.get("z_dim", 16)), pixels, frames, self.tokens.cell, exact=True)

    def statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """See Standardized: those of the VAE's configuration."""
        return self._statistics.like(like)

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: hidden states (B, 512, 4096), zeros after the text, without a mask."""
        encoder, (length, width) = self._part(_UMT5), self._text_shape
        if not captions:
            return TextEmbedding(self._empty(_UMT5, length, width))
        ids, mask, _ = self._tokens(_UMT5, captions)
        with without_autocast(encoder):
            states = t5.states(encoder, ids, mask)
        return TextEmbedding(states * mask[:, :, None].to(states.dtype))

    def _apply_template(self, part: str, captions: Sequence[str]) -> list[str]:
        return [clean_caption(caption) for caption in captions]

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily. The time input is 1000 σ in float32, for the 5B model per token. Of two denoisers each
        predicts the samples at its levels; in training with one trained denoiser that one predicts all."""
        nets = self.denoisers
        if len(nets) > 1 and torch.is_grad_enabled():
            moving = [net for net in nets if any(p.requires_grad for p in net.parameters())]
            nets = tuple(moving) if len(moving) == 1 else nets
        if len(nets) == 1 or isinstance(noised.model_t, FakeTensor):
            return self._velocity(nets[0], noised, condition.text.states)
        velocity, times = torch.zeros_like(noised.model_input), noised.model_t
        if noised.host_level is not None:  # the host assigns samples to denoisers without waiting for the device
            times = noised.host_level * self.schedule.num_timesteps
        is_high = times >= self._boundary * 1000
        for net, selected in zip(nets, (is_high, ~is_high), strict=True):
            rows = to_device(selected.nonzero()[:, 0], velocity.device) if times.is_cpu else selected.nonzero()[:, 0]
            share = 1.0 if len(rows) else 0.0
            if not share and not torch.is_grad_enabled():
                continue
            # with sharded weights every process must run the network, even without samples for it
            rows = rows if share else rows.new_zeros(1)
            part = self._velocity(net, select_samples(noised, rows), condition.text.states[rows])
            velocity = velocity.index_add(0, rows, share * part.to(velocity.dtype))
        return velocity

    def _velocity(self, net: nn.Module, noised: Noised, states: Tensor) -> Tensor:
        x, first = noised.model_input, cast(nn.Module, net.patch_embedding)  # other layers may be kept in fp32
        velocity = net(
            hidden_states=cast_like_parameters(as_clips(x), first),
            timestep=self.token_times(noised) if self.takes_first_frame else noised.model_t,
            encoder_hidden_states=cast_like_parameters(states, first),
            return_dict=False,
        )[0]
        return cast(Tensor, velocity if x.ndim == 5 else velocity[:, :, 0])


def clean_caption(caption: str) -> str:
    """A caption cleaned as in Wan's pipeline: wrongly decoded characters repaired if the package ftfy is installed,
    HTML entities unescaped, runs of white space collapsed to one space."""
    if importlib.util.find_spec("ftfy") is not None:
        import ftfy

        caption = ftfy.fix_text(caption)
    return re.sub(r"\s+", " ", html.unescape(html.unescape(caption)).strip()).strip()
