"""Wan 2.1 and 2.2 (arXiv:2503.20314), text and image to video, read from diffusers folders, written as folders.

A caption is encoded by UMT5 with its mask, and zeros replace padding; the denoiser takes no mask. A clip of n frames
has (n − 1)/4 + 1 latent frames; an image is a clip of one frame.

Image-to-video models are given a clip's first frame: the denoiser's input has further channels, which frames are given
and the latents of the first frame with grey ones after it. Wan 2.1's are also given the hidden states of CLIP's image
encoder for that frame; they have keys and values of their own.
"""

from __future__ import annotations

import html
import importlib.metadata
import importlib.util
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from mezzotint.diffusion.first_frame import FIRST_FRAME, VISION, hold, mask_given
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
from mezzotint.weights.files import fingerprint
from mezzotint.weights.folder import t5
from mezzotint.weights.folder.model_folder import ModelFolder, require_plain
from mezzotint.weights.folder.tokenizer import tokenizer_errors
from mezzotint.weights.model_files import ConfigConstraint, ModelFiles
from mezzotint.weights.single_file import original as originals
from mezzotint.weights.single_file.original import DENOISER, FilePart, Renames
from mezzotint.weights.single_file.standalone import StandalonePart

_UMT5 = "text_encoder"
_VISION = "image_encoder"
_PROCESSOR, _PROCESSOR_FILE = "image_processor", "preprocessor_config.json"
_TEXT_TO_VIDEO, _IMAGE_TO_VIDEO = "WanPipeline", "WanImageToVideoPipeline"
_TOKENS = 512
"""The texts of a denoiser with an image encoder, which tells images from text by this number."""
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
    (r"^condition_embedder\.image_embedder\.norm1\.", "img_emb.proj.0."),
    (r"^condition_embedder\.image_embedder\.ff\.net\.0\.proj\.", "img_emb.proj.1."),
    (r"^condition_embedder\.image_embedder\.ff\.net\.2\.", "img_emb.proj.3."),
    (r"^condition_embedder\.image_embedder\.norm2\.", "img_emb.proj.4."),
    (r"\.add_([kv])_proj\.", r".\1_img."),
    (r"\.norm_added_k\.", ".norm_k_img."),
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
    pipelines = (_TEXT_TO_VIDEO, _IMAGE_TO_VIDEO)
    renames = _ORIGINAL

    @classmethod
    def find_absent_parts(cls, folder: ModelFolder) -> Collection[str]:
        """See FlowFiles: the second denoiser, except in Wan 2.2 A14B, and the image encoder, except in Wan 2.1 I2V."""
        optional = {_LOW: "transformer_2", _VISION: "image_encoder"}
        entries = {part: folder.index.get(name) for part, name in optional.items()}
        return [part for part, entry in entries.items() if not (isinstance(entry, list) and any(entry))]

    @classmethod
    def of(cls, settings: ModelSettings, seed: int = 0) -> Files:
        """See FlowFiles. Raises WeightsError E1222 for a model with two denoisers and no valid boundary between them,
        and for one whose denoiser is not that of its pipeline, E1409 without an image encoder that the denoiser
        needs, E1464 for another number of text tokens than the denoiser takes, E1478 for a file of the other task."""
        files = super().of(settings, seed)
        if _LOW in files.configs and not 0.0 < files.boundary < 1.0:
            raise WeightsError(
                f"{files.root}: has two denoisers, but boundary_ratio in model_index.json, the lowest level of the "
                f"first, is {files.folder.index.get('boundary_ratio')!r}; it is .875 for Wan 2.2 T2V A14B, .9 for I2V "
                "A14B",
                code="E1222",
            )
        files._require_task()
        if files.configs["denoiser"].get("image_dim"):
            files._require_vision()
        return files._with_low_noise()

    def _require_task(self) -> None:
        denoiser, pipeline = self.configs["denoiser"], self.folder.index.get("_class_name")
        channels = denoiser.get("in_channels", 16)
        if self.single is not None and "denoiser" in self.single.parts:
            first = self.single.parts["denoiser"].get("patch_embedding.weight")  # loading reports a missing one
            of_file = channels if first is None else first.shape[1]
            if of_file != channels:
                names = [_task_of(count == _animated_channels(self.configs)) for count in (of_file, channels)]
                raise WeightsError(
                    f"{self.single.path}: holds the denoiser of {names[0]} ({of_file} channels), but {self.root} "
                    f"describes {names[1]} ({channels} channels); write model.config=FOLDER, the folder of the file's "
                    "model",
                    code="E1478",
                )
        if denoiser.get("pos_embed_seq_len"):
            raise WeightsError(
                f"{self.root}: continues a first and a last frame, which is not supported; family {self.spec.name} "
                f"trains {self.spec.trains}",
                code="E1222",
            )
        expected = self.animates or self.by_token if pipeline == _IMAGE_TO_VIDEO else not self.animates
        if not expected:
            raise WeightsError(
                f"{self.root}: is a folder of {pipeline}, but its denoiser takes {channels} channels, as that of "
                f"{_task_of(self.animates)}; its parts are of different models: download the complete model",
                code="E1222",
            )

    def _require_vision(self) -> None:
        if _VISION not in self.configs or not (self.root / _PROCESSOR / _PROCESSOR_FILE).is_file():
            lacking = f"{_PROCESSOR}/{_PROCESSOR_FILE}" if _VISION in self.configs else f"{_VISION}/"
            raise WeightsError(f"{self.root}: lacks {lacking}; download the complete model", code="E1409")
        if self.length(_UMT5) != _TOKENS:
            raise WeightsError(
                f"model.wan.text_tokens={self.length(_UMT5)}: this model takes texts of {_TOKENS} tokens; leave it out",
                code="E1464",
            )

    @property
    def animates(self) -> bool:
        """See ModelFiles: Wan 2.1 I2V and 2.2 I2V A14B."""
        return self.configs["denoiser"].get("in_channels") == _animated_channels(self.configs)

    def media_identity(self) -> str:
        """See FlowFiles, for a model that animates with what first frames are encoded by."""
        if not self.animates:
            return super().media_identity()
        vision = ""
        if _VISION in self.configs:
            processor = fingerprint.of_files([self.root / _PROCESSOR / _PROCESSOR_FILE])
            vision = f" image_encoder={self.fingerprint(_VISION)} processor={processor}"
        return f"{super().media_identity()} first-frames-1{vision}"

    def image_processor(self) -> Any:
        """The image processor of CLIP, which computes with Pillow. Raises WeightsError E1409."""
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

        require_plain(root := self.root / _PROCESSOR)
        with tokenizer_errors(root, what="image processor"):
            return CLIPImageProcessorPil.from_pretrained(str(root), local_files_only=True)

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
        denoiser, channels = configs["denoiser"], configs["vae"].get("z_dim", 16)
        taken = denoiser.get("in_channels", 16)
        if taken != _animated_channels(configs):
            yield "the denoiser takes latents of channels", taken, channels
        yield "the denoiser gives latents of channels", denoiser.get("out_channels") or taken, channels
        if _VISION in configs and denoiser.get("image_dim"):
            width = configs[_VISION].get("hidden_size")
            yield "the denoiser takes hidden states of images of width", denoiser.get("image_dim"), width
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
            if self.animates:
                raise WeightsError(
                    f"{self.root}: always continues a clip's first frame; remove model.wan.first_frame_prob",
                    code="E1480",
                )
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
        self._open_image_processor = files.image_processor
        self._image_processor: Any = None
        self._image_dim = int(files.configs["denoiser"].get("image_dim") or 0)
        if self._image_dim:
            vision = files.configs[_VISION]
            tokens = (int(vision["image_size"]) // int(vision["patch_size"])) ** 2 + 1
            self.vision_numbers = tokens * self._image_dim
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
        least = frames + 1 if files.animates else 1
        return Grid(int(vae.get("z_dim", 16)), pixels, frames, self.tokens.cell, exact=True, least_frames=least)

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
        states, images = condition.text.states, condition.images
        if len(nets) == 1 or isinstance(noised.model_t, FakeTensor):
            return self._velocity(nets[0], noised, states, images)
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
            of_rows = {name: image[rows] for name, image in images.items()}
            part = self._velocity(net, select_samples(noised, rows), states[rows], of_rows)
            velocity = velocity.index_add(0, rows, share * part.to(velocity.dtype))
        return velocity

    def _velocity(self, net: nn.Module, noised: Noised, states: Tensor, images: Mapping[str, Tensor]) -> Tensor:
        x, first = noised.model_input, cast(nn.Module, net.patch_embedding)  # other layers may be kept in fp32
        clips, more = as_clips(x), {}
        if self.animates:
            clips = torch.cat([clips, self._first_frame_channels(clips, images)], dim=1)
            if self._image_dim:
                more["encoder_hidden_states_image"] = cast_like_parameters(self._vision_states(x, images), first)
        velocity = net(
            hidden_states=cast_like_parameters(clips, first),
            timestep=self.token_times(noised) if self.takes_first_frame else noised.model_t,
            encoder_hidden_states=cast_like_parameters(states, first),
            return_dict=False,
            **more,
        )[0]
        return cast(Tensor, velocity if x.ndim == 5 else velocity[:, :, 0])

    def _first_frame_channels(self, clips: Tensor, images: Mapping[str, Tensor]) -> Tensor:
        """Which frames are given, and the latents of the first frame, (B, 4 + C, f, h, w); zeros without one. clips:
        noisy latents (B, C, f, h, w)."""
        mask, frame = mask_given(clips, self.grid.frames), images.get(FIRST_FRAME)
        if frame is None:
            return torch.cat([torch.zeros_like(mask), torch.zeros_like(clips)], dim=1)
        return torch.cat([mask, frame.to(clips)], dim=1)

    def _vision_states(self, x: Tensor, images: Mapping[str, Tensor]) -> Tensor:
        """The image encoder's hidden states (B, 257, 1280); zeros without a first frame. x: of the B samples."""
        states = images.get(VISION)
        states = torch.zeros(len(x), self.vision_numbers, device=x.device) if states is None else states
        return states.view(len(x), -1, self._image_dim)

    @torch.no_grad()
    def encode_first_frames(self, images: Tensor, frames: int) -> dict[str, Tensor]:
        """See ModelFamily: of the autoencoder's posterior the mean, of the image encoder the last hidden states but
        one."""
        encoded = {FIRST_FRAME: self.encode_media(hold(images, frames)).chunk(2, dim=1)[0]}
        if not self._image_dim:
            return encoded
        encoder = self._part(_VISION)
        if not len(images):
            return encoded | {VISION: images.new_zeros((0, self.vision_numbers), dtype=torch.float32)}
        self._image_processor = self._image_processor or self._open_image_processor()
        levels = ((images.float() + 1.0) * 127.5).round().clamp(0, 255).to("cpu", torch.uint8)
        pixels = self._image_processor(images=list(levels), return_tensors="pt").pixel_values
        with without_autocast(encoder):
            states = encoder(cast_like_parameters(pixels, encoder), output_hidden_states=True).hidden_states[-2]
        return encoded | {VISION: states.float().flatten(1)}


def _animated_channels(configs: Configs) -> int:
    """How many channels the denoiser of an image-to-video model takes: noisy latents, which frames are given, and the
    latents of the first frame."""
    vae = configs["vae"]
    return 2 * int(vae.get("z_dim", 16)) + int(vae.get("scale_factor_temporal") or 4)


def _task_of(animates: bool) -> str:
    return f"{'an image' if animates else 'a text'}-to-video model"


def clean_caption(caption: str) -> str:
    """A caption cleaned as in Wan's pipeline: wrongly decoded characters repaired if the package ftfy is installed,
    HTML entities unescaped, runs of white space collapsed to one space."""
    if importlib.util.find_spec("ftfy") is not None:
        import ftfy

        caption = ftfy.fix_text(caption)
    return re.sub(r"\s+", " ", html.unescape(html.unescape(caption)).strip()).strip()
