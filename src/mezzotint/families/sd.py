"""Stable Diffusion 1.x and 2.x, epsilon and v, from model folders in diffusers' layout and single files, to folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self, cast

from torch import Tensor

from mezzotint.families._stable import StableFamily, like_parameters
from mezzotint.families._stable_files import Configs, Joint, Kin, open_source, read_folder
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.stages import Batch, Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.folder.model_folder import shipped
from mezzotint.weights.layouts import sd

_TINY: dict[str, dict[str, Any]] = {
    "denoiser": {
        "block_out_channels": [16, 32], "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "layers_per_block": 1, "cross_attention_dim": 32,
        "sample_size": 8,
    },
    "text_encoder": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "projection_dim": 32},
    "vae": {"block_out_channels": [16, 16, 16, 16], "sample_size": 64},
}  # fmt: skip


def _joints(configs: Configs) -> Iterator[Joint]:
    unet, text = configs["denoiser"], configs["text_encoder"]
    yield "the denoiser takes text of width", unet.get("cross_attention_dim"), text.get("hidden_size")


class Family(StableFamily):
    """Stable Diffusion 1.x or 2.x: one text encoder, and the denoiser is told the text and nothing else."""

    trainable: ClassVar[tuple[str, ...]] = ("denoiser", "text_encoder")
    file_styles = frozenset({"safetensors"})
    kin = Kin(
        name="sd",
        trains="Stable Diffusion 1.x and 2.x, text to image",
        components={"denoiser": "unet", "text_encoder": "text_encoder", "vae": "vae"},
        networks={"denoiser": "unet", "text_encoder": "clip_text", "vae": "vae"},
        tokenizers={"text_encoder": "tokenizer"},
        layout=sd.LAYOUT,
        scale=0.18215,
        fewest_layers=1,
        absent=lambda folder: (),
        joints=_joints,
    )

    @classmethod
    def tiny(cls, seed: int = 0) -> Self:
        """The shipped tiny-sd, narrowed to two levels and under a million parameters, with random weights."""
        return cls._narrowed(read_folder(cls.kin, shipped("tiny-sd"), "random", seed), _TINY)

    @classmethod
    def text_identity(cls, settings: ModelSettings, *, seed: int = 0) -> str:
        """See ModelFamily."""
        source = open_source(cls.kin, settings, seed)
        encoder, tokenizer = source.fingerprint("text_encoder"), source.tokenizer_fingerprint("text_encoder")
        length = source.length("text_encoder")
        return f"sd-text-1 encoder={encoder} tokenizer={tokenizer} clip_skip={settings.clip_skip} tokens={length}"

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        """See ModelFamily: (B, 77, D), without a mask, as these models are trained. Captions that are too long lose
        their end; `lost_tokens` says how much."""
        encoder = self._part("text_encoder")
        if not captions:
            width = int(self._source.configs["text_encoder"]["hidden_size"])
            length = self._source.length("text_encoder")
            return TextEmbedding(next(encoder.parameters()).new_empty((0, length, width)))
        ids = self._tokens("text_encoder", captions)
        if self._clip_skip == 0:
            return TextEmbedding(encoder(ids).last_hidden_state)
        states = encoder(ids, output_hidden_states=True).hidden_states[-(self._clip_skip + 1)]
        inner = getattr(encoder, "text_model", encoder)  # the level that transformers 5 dropped
        return TextEmbedding(inner.final_layer_norm(states))

    def condition(self, text: TextEmbedding, batch: Batch | None, framing: Framing | None = None) -> Condition:
        """See ModelFamily: these models are told the text and nothing else."""
        return Condition(text)

    def predict(self, noised: Noised, condition: Condition) -> Tensor:
        """See ModelFamily."""
        unet = self._part("denoiser")
        states = like_parameters(condition.text.states, unet)
        model_input = like_parameters(noised.model_input, unet)
        return cast(Tensor, unet(model_input, noised.model_t, encoder_hidden_states=states, return_dict=False)[0])
