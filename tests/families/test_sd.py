"""Family sd: the same numbers as diffusers, only requested parts are loaded, other models are rejected by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.models.clip.modeling_clip import CLIPTextModel
from transformers.models.clip.tokenization_clip import CLIPTokenizer

from mezzotint.families.base import posterior_sample
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.stages import Noised, TextEmbedding
from support.rounding import apart, within
from support.sd_folder import DATA, FOLDER, edit


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    record: dict[str, torch.Tensor] = load_file(DATA / "encoders.safetensors")
    return record


def _noised(x: torch.Tensor, t: torch.Tensor) -> Noised:
    return Noised(x_0=x, noise=x, x_t=x, model_input=x, model_t=t, level=t.float())


def test_text_states_equal_those_of_transformers(family: Family, golden: dict[str, torch.Tensor]) -> None:
    texts = json.loads((DATA / "encoders.json").read_text())["texts"]
    text = family.encode_text(texts)
    assert text.mask is None
    assert text.pooled is None
    # sums over 32 channels in four layers, in the processor's order
    within(text.states, golden["sd.hidden"], roundings=128)


def test_posterior_moments_equal_those_of_diffusers(family: Family, golden: dict[str, torch.Tensor]) -> None:
    moments = family.encode_media(golden["pixel_values"])
    expected = torch.cat((golden["sd.vae_mean"], golden["sd.vae_std"]), dim=1) * 0.18215
    torch.testing.assert_close(moments, expected, rtol=1e-4, atol=1e-6)
    latents = posterior_sample(moments, golden["posterior_noise"])
    torch.testing.assert_close(latents, golden["sd.latents"], rtol=1e-4, atol=1e-6)


def test_clip_skip_omits_the_last_layers_and_keeps_the_final_norm(family: Family) -> None:
    stock = CLIPTextModel.from_pretrained(FOLDER / "text_encoder", local_files_only=True).eval()
    tokenizer = CLIPTokenizer.from_pretrained(FOLDER / "tokenizer", local_files_only=True)
    ids = torch.tensor(tokenizer(["a cat"], padding="max_length").input_ids)
    with torch.no_grad():
        hidden = stock(ids, output_hidden_states=True).hidden_states
        for skip in (1, 2):
            skipping = Family.of(ModelSettings(path=FOLDER, clip_skip=skip), only=["text_encoder"])
            expected = getattr(stock, "text_model", stock).final_layer_norm(hidden[-1 - skip])
            within(skipping.encode_text(["a cat"]).states, expected, roundings=128)


def test_prediction_equals_that_of_diffusers(family: Family) -> None:
    unet: Any = family.parts()["denoiser"]
    x, t = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([10, 800])
    text = TextEmbedding(torch.randn(2, 77, 32, generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        ours = family.predict(_noised(x, t), family.condition(text, None))
        assert torch.equal(ours, unet(x, t, encoder_hidden_states=text.states).sample)


def _change_vocabulary(folder: Path) -> None:
    (folder / "tokenizer" / "merges.txt").write_text("#version: 0.2\ni n\n")


def _change_encoder(folder: Path) -> None:
    path = folder / "text_encoder" / "model.safetensors"
    state = load_file(path)
    state["text_model.final_layer_norm.bias"] += 1e-3
    save_file(state, path)


@pytest.mark.parametrize("change", [_change_vocabulary, _change_encoder])
def test_text_settings_change_the_identity_of_text(copy: Path, change: Callable[[Path], None]) -> None:
    before = Family.files.of(ModelSettings(path=copy)).text_identity()
    media = Family.files.of(ModelSettings(path=copy)).media_identity()
    change(copy)
    assert Family.files.of(ModelSettings(path=copy)).text_identity() != before
    assert Family.files.of(ModelSettings(path=copy)).media_identity() == media


def test_clip_skip_changes_the_identity_of_text() -> None:
    one, two = (Family.files.of(ModelSettings(path=FOLDER, clip_skip=n)).text_identity() for n in (0, 1))
    assert one != two
    assert "\n" not in one


def test_tiny_model_is_small_complete_and_deterministic() -> None:
    tiny, again = Family.tiny(3), Family.tiny(3)
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in tiny.parts().items()}
    assert sizes.keys() == {"denoiser", "text_encoder", "vae"}
    assert sum(sizes.values()) < 1_000_000
    for name, part in tiny.parts().items():
        assert all(torch.equal(a, b) for a, b in zip(part.parameters(), again.parts()[name].parameters(), strict=True))
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    moments = tiny.encode_media(pixels)
    assert moments.shape == (2, 8, 8, 8)
    text = tiny.encode_text(["a red circle", "a blue star"])
    out = tiny.predict(_noised(moments[:, :4], torch.tensor([5, 900])), tiny.condition(text, None))
    assert out.shape == (2, 4, 8, 8)
    back = tiny.decode_media(moments[:, :4])
    assert back.shape == (2, 3, 64, 64)
    assert back.dtype == torch.float32
    assert float(back.abs().max()) <= 1


def test_an_empty_batch_passes_through_the_encoders() -> None:
    tiny = Family.tiny()
    assert tiny.encode_media(torch.zeros(0, 3, 64, 32)).shape == (0, 8, 8, 4)
    assert tiny.encode_text([]).states.shape == (0, 77, 32)


def test_different_captions_have_different_embeddings() -> None:
    states = Family.tiny().encode_text(["a red circle", "a blue circle", ""]).states
    for a, b in ((0, 1), (0, 2)):
        assert float((states[a] - states[b]).detach().abs().mean()) > 0.01


def test_text_encoder_gets_a_gradient_and_the_autoencoder_none() -> None:
    tiny = Family.tiny()
    assert tiny.encode_text(["a cat"]).states.requires_grad
    assert not tiny.encode_media(torch.zeros(1, 3, 16, 16)).requires_grad
    assert not tiny.decode_media(torch.zeros(1, 4, 2, 2)).requires_grad


def test_blocks_contain_each_residual_and_attention_module_once() -> None:
    tiny = Family.tiny()
    unet: Any = tiny.parts()["denoiser"]
    expected = [id(m) for m in unet.modules() if type(m).__name__ in ("ResnetBlock2D", "Transformer2DModel")]
    units = list(tiny.blocks())
    assert sorted(id(m) for unit in units for m in unit) == sorted(expected)
    assert units[0] == (unet.down_blocks[0].resnets[0], unet.down_blocks[0].attentions[0])
    assert units[-1] == (unet.up_blocks[-1].resnets[-1], unet.up_blocks[-1].attentions[-1])
    seen: list[int] = []
    for module in (m for unit in units for m in unit):
        module.register_forward_hook(lambda m, *_: seen.append(id(m)))
    text = tiny.encode_text(["x"])
    tiny.predict(_noised(torch.zeros(1, 4, 8, 8), torch.tensor([1])), tiny.condition(text, None))
    assert seen == [id(m) for unit in units for m in unit]


def test_truncated_captions_are_counted(family: Family) -> None:
    fitting, longer = " ".join(["red"] * 75), " ".join(["red"] * 80)
    assert family.lost_tokens([fitting, longer, ""]) == (0, 5, 0)
    assert family.lost_tokens([]) == ()
    states = family.encode_text([fitting, longer]).states
    within(states[0], states[1], roundings=128)  # the place in a batch may change the order of sums
    assert apart(states[0], family.encode_text([" ".join(["red"] * 74)]).states[0]) > 1e4


def test_autoencoder_without_scaling_factor_has_the_default(copy: Path) -> None:
    config = json.loads((copy / "vae" / "config.json").read_text())
    del config["scaling_factor"]
    (copy / "vae" / "config.json").write_text(json.dumps(config))
    assert "scale=0.18215" in Family.files.of(ModelSettings(path=copy)).media_identity()


def test_autoencoder_with_a_shift_encodes_and_decodes_with_it(copy: Path, family: Family) -> None:
    edit(copy / "vae" / "config.json", shift_factor=0.5, scaling_factor=2.0)
    shifted = Family.of(ModelSettings(path=copy), only=["vae"])
    pixels = torch.zeros(1, 3, 16, 16)
    mean, std = family.encode_media(pixels).chunk(2, dim=1)
    moved, spread = shifted.encode_media(pixels).chunk(2, dim=1)
    torch.testing.assert_close(moved, (mean / 0.18215 - 0.5) * 2.0)
    torch.testing.assert_close(spread, std / 0.18215 * 2.0)
    torch.testing.assert_close(shifted.decode_media(moved), family.decode_media(mean))
