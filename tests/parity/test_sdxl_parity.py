"""A small SDXL of Stability's generative-models: its file, denoiser, autoencoder, text encoders and gradients.

The weights are sampled as in the record: one CPU generator of seed 1234, denoiser, autoencoder, CLIP and OpenCLIP in
this order, names sorted; matrices and kernels by 1/√(fan in), scales of norms by 0.1 around 1, all other vectors by
0.05. The stored text encoders check this against the record.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.families.sdxl import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.stages import Condition, Framing, Noised, TextEmbedding
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.single_file.single_file import open_single
from support.rounding import within

DATA = Path(__file__).parent / "data" / "mindone-sdxl"
RECORD = load_file(DATA / "tiny_sdxl.safetensors")
STARTS = ("model.diffusion_model.", "first_stage_model.", "conditioner.embedders.0.", "conditioner.embedders.1.")
CONFIGS: dict[str, dict[str, Any]] = {
    "unet": {
        "attention_head_dim": [2, 4], "block_out_channels": [32, 64], "cross_attention_dim": 64,
        "norm_num_groups": 32, "projection_class_embeddings_input_dim": 80,
    },
    "vae": {
        "block_out_channels": [32, 64], "down_block_types": ["DownEncoderBlock2D"] * 2, "layers_per_block": 1,
        "norm_num_groups": 32, "scaling_factor": 0.13025, "up_block_types": ["UpDecoderBlock2D"] * 2,
    },
    "text_encoder": {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 1000},
    "text_encoder_2": {
        "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "hidden_size": 32, "intermediate_size": 128,
        "num_attention_heads": 2, "projection_dim": 32, "vocab_size": 1000,
    },
}  # fmt: skip


def drawn() -> dict[str, Tensor]:
    """All 510 tensors under Stability's names."""
    shapes: dict[str, list[Any]] = json.loads((DATA / "names.json").read_text())
    generator = torch.Generator().manual_seed(1234)
    tensors = {}
    for start in STARTS:
        for name in sorted(name for name in shapes if name.startswith(start)):
            number = torch.randn(tuple(shapes[name][1]), generator=generator)
            if number.ndim > 1:
                tensors[name] = number / number[0].numel() ** 0.5
            else:
                tensors[name] = 1 + 0.1 * number if name.endswith(".weight") else 0.05 * number
    assert tensors.keys() == shapes.keys()
    return tensors


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return drawn()


@pytest.fixture(scope="module")
def settings(weights: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    root = tmp_path_factory.mktemp("stability")
    folder = shutil.copytree(shipped_folder("tiny-sdxl"), root / "config")
    for name, changed in CONFIGS.items():
        path = folder / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    save_file(weights, root / "model.safetensors")
    return ModelSettings(family="sdxl", path=root / "model.safetensors", config=folder)


@pytest.fixture(scope="module")
def family(settings: ModelSettings) -> Family:
    return Family.of(settings)


@pytest.fixture
def text(family: Family, monkeypatch: pytest.MonkeyPatch) -> TextEmbedding:
    """The outputs of the encoders for the recorded tokens."""
    ids = {"text_encoder": RECORD["input_ids_clip"], "text_encoder_2": RECORD["input_ids_openclip"]}
    monkeypatch.setattr(Family, "_tokens", lambda self, part, captions: (ids[part], None, None))
    with torch.no_grad():
        return family.encode_text(["", ""])


def same(ours: Tensor, name: str, *, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    expected = RECORD[name]
    print(f"\n{name}: worst deviation {float((ours - expected).abs().max()):.1e}")  # shown by pytest -s
    torch.testing.assert_close(ours, expected, rtol=rtol, atol=atol)


def noised(x: Tensor, t: Tensor) -> Noised:
    return Noised(x_0=x, noise=x, x_t=x, model_input=x, model_t=t, level=t.float())


def sizes() -> Framing:
    names = ("original_size_as_tuple", "crop_coords_top_left", "target_size_as_tuple")
    return Framing(*(RECORD[name].long() for name in names))


def vector_of(family: Family, condition: Condition) -> Tensor:
    """The addition to the denoiser's time embedding: pooled text and embedded sizes, combined by the denoiser."""
    unet: Any = family.parts()["denoiser"]
    seen: list[Tensor] = []
    hook = unet.add_embedding.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        family.predict(noised(RECORD["x"], RECORD["timesteps"]), condition)
    hook.remove()
    return seen[0]


def test_weights_equal_the_recorded_weights(weights: dict[str, Tensor]) -> None:
    stored = load_file(DATA / "text_encoders.safetensors")
    compared = [name for name in stored if name in weights and stored[name].ndim]
    assert len(compared) > 90
    for name in compared:
        # a normal number is √(−2 ln u) · cos(2πv), whose root, logarithm and cosine a processor rounds in its own way
        within(weights[name], stored[name], roundings=16, name=name)


def test_each_tensor_of_the_file_is_used(settings: ModelSettings, weights: dict[str, Tensor]) -> None:
    single = open_single(settings.path, Family.files.layout, config=settings.config)
    assert single.unmapped.unknown == ()
    taken = sum(len(table.match_names(weights)) for table in single.tables.values())
    assert taken == len(weights) - len(single.unmapped.extras)
    assert single.unmapped.extras == ("conditioner.embedders.1.model.logit_scale",)


def test_text_embeddings_equal_those_of_the_conditioner(text: TextEmbedding) -> None:
    assert text.pooled is not None
    same(text.states, "crossattn", rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(text.pooled, RECORD["vector"][:, :32], rtol=1e-5, atol=1e-5)


def test_sizes_are_embedded_in_the_order_of_the_conditioner(family: Family, text: TextEmbedding) -> None:
    same(vector_of(family, family.condition(text, None, sizes())), "vector", rtol=1e-4, atol=2e-5)


def test_zeroed_text_keeps_the_size_conditioning(family: Family, text: TextEmbedding) -> None:
    assert text.pooled is not None
    nothing = TextEmbedding(torch.zeros_like(text.states), pooled=torch.zeros_like(text.pooled))
    same(vector_of(family, family.condition(nothing, None, sizes())), "vector_zero_txt", rtol=1e-4, atol=2e-5)
    assert torch.equal(nothing.states, RECORD["crossattn_zero_txt"])


def test_prediction_and_gradients_equal_the_record(settings: ModelSettings) -> None:
    family = Family.of(settings, only=["denoiser"])
    x = RECORD["x"].clone().requires_grad_()
    recorded = TextEmbedding(RECORD["context"], pooled=RECORD["y"][:, :32])
    out = family.predict(noised(x, RECORD["timesteps"]), family.condition(recorded, None, sizes()))
    same(out.detach(), "unet_out")
    loss = out.square().mean()
    same(loss.detach()[None], "loss_mean_square", rtol=1e-5)
    loss.backward()
    assert x.grad is not None
    same(x.grad, "grad_x", atol=2e-7)
    single = open_single(settings.path, family.files.layout, config=settings.config)
    names = [name for name in RECORD if name.startswith("grad.")]
    assert len(names) == 5
    for name in names:
        entry = single.tables["unet"].find_foreign("model.diffusion_model." + name.removeprefix("grad."))
        assert entry is not None
        [ours] = entry.ours
        grad = family.parts()["denoiser"].get_parameter(ours).grad
        assert grad is not None
        same(grad, name, atol=2e-7)


@torch.no_grad()
def test_encoded_moments_and_decoded_images_equal_the_record(family: Family) -> None:
    vae: Any = family.parts()["vae"]
    same(vae.encode(RECORD["image"]).latent_dist.parameters, "vae_moments")
    mean, std = family.encode_media(RECORD["image"]).chunk(2, dim=1)
    same(mean / 0.13025, "vae_mean")
    expected = (0.5 * RECORD["vae_logvar"].clamp(-30, 20)).exp()
    torch.testing.assert_close(std / 0.13025, expected, rtol=1e-4, atol=1e-4)
    same(vae.decode(RECORD["z"]).sample, "vae_decoded")
    images = family.decode_media(RECORD["z"] * 0.13025)
    torch.testing.assert_close(images, RECORD["vae_decoded"].clamp(-1, 1), rtol=1e-4, atol=1e-4)
