"""Family sd: the numbers of the stock libraries, only what is asked for is loaded, other models are refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rounding import apart, within
from safetensors.torch import load_file, save_file
from transformers.models.clip.modeling_clip import CLIPTextModel

from mezzotint.errors import WeightsError
from mezzotint.families.base import Grid, posterior_sample
from mezzotint.families.sd import Family
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.stages import Noised, TextEmbedding
from mezzotint.weights.folder.model_folder import shipped

DATA = Path(__file__).parents[1] / "parity" / "data" / "diffusers"
FOLDER = DATA / "tiny_sd"


@pytest.fixture(scope="module")
def family() -> Family:
    return Family.of(ModelSettings(path=FOLDER))


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    record: dict[str, torch.Tensor] = load_file(DATA / "encoders.safetensors")
    return record


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "model"))


def _edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _noised(x: torch.Tensor, t: torch.Tensor) -> Noised:
    return Noised(x_0=x, noise=x, x_t=x, model_input=x, model_t=t, level=t.float())


# parity with the stock libraries


def test_text_states_equal_the_stock_encoders(family: Family, golden: dict[str, torch.Tensor]) -> None:
    texts = json.loads((DATA / "encoders.json").read_text())["texts"]
    text = family.encode_text(texts)
    assert text.mask is None
    assert text.pooled is None
    # sums over 32 channels in four layers, in the processor's order
    within(text.states, golden["sd.hidden"], roundings=128)


def test_posterior_moments_equal_the_stock_autoencoders(family: Family, golden: dict[str, torch.Tensor]) -> None:
    moments = family.encode_media(golden["pixel_values"])
    expected = torch.cat((golden["sd.vae_mean"], golden["sd.vae_std"]), dim=1) * 0.18215
    torch.testing.assert_close(moments, expected, rtol=1e-4, atol=1e-6)
    latents = posterior_sample(moments, golden["posterior_noise"])
    torch.testing.assert_close(latents, golden["sd.latents"], rtol=1e-4, atol=1e-6)


def test_clip_skip_leaves_out_the_last_layers_and_keeps_the_final_norm(family: Family) -> None:
    stock = CLIPTextModel.from_pretrained(FOLDER / "text_encoder", local_files_only=True).eval()
    ids = torch.tensor(family._tokenizer("text_encoder")(["a cat"], padding="max_length").input_ids)
    with torch.no_grad():
        hidden = stock(ids, output_hidden_states=True).hidden_states
        for skip in (1, 2):
            skipping = Family.of(ModelSettings(path=FOLDER, clip_skip=skip), only=["text_encoder"])
            expected = stock.final_layer_norm(hidden[-1 - skip])
            within(skipping.encode_text(["a cat"]).states, expected, roundings=128)


def test_the_prediction_is_the_stock_denoisers(family: Family) -> None:
    unet: Any = family.parts()["denoiser"]
    x, t = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([10, 800])
    text = TextEmbedding(torch.randn(2, 77, 32, generator=torch.Generator().manual_seed(1)))
    with torch.no_grad():
        ours = family.predict(_noised(x, t), family.condition(text, None))
        assert torch.equal(ours, unet(x, t, encoder_hidden_states=text.states).sample)


# what is loaded, and what names it


def test_only_the_named_parts_are_loaded_and_the_rest_is_known_all_the_same() -> None:
    part = Family.of(ModelSettings(path=FOLDER), only=["denoiser"])
    assert part.parts().keys() == {"denoiser"}
    assert part.grid == Grid(channels=4, pixels=8)
    assert part.lost_tokens(["a red circle"]) == (0,)
    with pytest.raises(AssertionError, match="vae was not loaded"):
        part.encode_media(torch.zeros(1, 3, 8, 8))


def test_parts_that_are_not_asked_for_may_be_absent(copy: Path) -> None:
    (copy / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    assert Family.of(ModelSettings(path=copy), only=["denoiser", "text_encoder"]).parts().keys() == {
        "denoiser",
        "text_encoder",
    }
    with pytest.raises(WeightsError, match=r"model\.weights=random") as caught:
        Family.of(ModelSettings(path=copy))
    assert caught.value.code == "E1407"


def test_everything_is_float32_in_eval_mode(family: Family) -> None:
    for module in family.parts().values():
        assert not any(m.training for m in module.modules())
        assert {p.dtype for p in module.parameters()} == {torch.float32}


def test_loading_and_encoding_draw_nothing_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    loaded = Family.of(ModelSettings(path=FOLDER))
    loaded.encode_text(["a cat"])
    loaded.encode_media(torch.zeros(1, 3, 16, 16))
    Family.tiny()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_lone_half_precision_variant_is_read_and_said(copy: Path, family: Family) -> None:
    plain = copy / "unet" / "diffusion_pytorch_model.safetensors"
    save_file({k: v.half() for k, v in load_file(plain).items()}, plain.with_suffix(".fp16.safetensors"))
    plain.with_suffix(".fp16.safetensors").rename(copy / "unet" / "diffusion_pytorch_model.fp16.safetensors")
    plain.unlink()
    half = Family.of(ModelSettings(path=copy), only=["denoiser"])
    assert any("variant fp16" in note for note in half.notes)
    assert not family.notes
    for a, b in zip(half.parts()["denoiser"].parameters(), family.parts()["denoiser"].parameters(), strict=True):
        assert torch.equal(a, b.half().float())


def test_fingerprints_follow_content_and_not_the_place(copy: Path) -> None:
    here, there = ModelSettings(path=FOLDER), ModelSettings(path=copy)
    parts = ("denoiser", "text_encoder", "vae")
    assert len({Family.files.of(here).fingerprint(part) for part in parts}) == 3
    assert all(Family.files.of(here).fingerprint(part) == Family.files.of(there).fingerprint(part) for part in parts)
    _edit(copy / "vae" / "config.json", _name_or_path="/somewhere", _diffusers_version="9.9")
    assert Family.files.of(here).fingerprint("vae") == Family.files.of(there).fingerprint("vae")
    _edit(copy / "vae" / "config.json", scaling_factor=0.5)
    assert Family.files.of(here).fingerprint("vae") != Family.files.of(there).fingerprint("vae")
    assert Family.files.of(here).media_identity() != Family.files.of(there).media_identity()
    assert Family.files.of(here).text_identity() == Family.files.of(there).text_identity()


def _change_vocabulary(folder: Path) -> None:
    (folder / "tokenizer" / "merges.txt").write_text("#version: 0.2\ni n\n")


def _change_encoder(folder: Path) -> None:
    path = folder / "text_encoder" / "model.safetensors"
    state = load_file(path)
    state["text_model.final_layer_norm.bias"] += 1e-3
    save_file(state, path)


@pytest.mark.parametrize("change", [_change_vocabulary, _change_encoder])
def test_what_shapes_text_embeddings_changes_their_identity(copy: Path, change: Callable[[Path], None]) -> None:
    before = Family.files.of(ModelSettings(path=copy)).text_identity()
    media = Family.files.of(ModelSettings(path=copy)).media_identity()
    change(copy)
    assert Family.files.of(ModelSettings(path=copy)).text_identity() != before
    assert Family.files.of(ModelSettings(path=copy)).media_identity() == media


def test_clip_skip_is_part_of_the_texts_identity() -> None:
    one, two = (Family.files.of(ModelSettings(path=FOLDER, clip_skip=n)).text_identity() for n in (0, 1))
    assert one != two
    assert "\n" not in one


# random weights


def test_random_weights_are_a_function_of_the_seed() -> None:
    settings = ModelSettings(path=shipped("tiny-sd"), weights="random")
    one, same, other = (Family.of(settings, only=["text_encoder"], seed=s) for s in (1, 1, 2))
    states = [f.encode_text(["a red circle"]).states for f in (one, same, other)]
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])
    assert any("vae" in note for note in Family.of(settings, only=["vae"]).notes)
    names = [Family.files.of(settings, s).fingerprint("denoiser") for s in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert Family.files.of(settings, 1).text_identity() != Family.files.of(settings, 2).text_identity()


def test_a_folder_without_weights_is_refused_unless_random_is_asked_for() -> None:
    with pytest.raises(WeightsError, match=r"model\.weights=random") as caught:
        Family.of(ModelSettings(path=shipped("tiny-sd")))
    assert caught.value.code == "E1407"


def test_random_may_be_asked_for_where_weights_are(family: Family) -> None:
    drawn = Family.of(ModelSettings(path=FOLDER, weights="random"), only=["denoiser"])
    pairs = zip(drawn.parts()["denoiser"].parameters(), family.parts()["denoiser"].parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)


def test_the_tiny_model_is_small_whole_and_repeats() -> None:
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


def test_captions_are_told_apart() -> None:
    states = Family.tiny().encode_text(["a red circle", "a blue circle", ""]).states
    for a, b in ((0, 1), (0, 2)):
        assert float((states[a] - states[b]).detach().abs().mean()) > 0.01


def test_a_trained_text_encoder_gets_a_gradient_and_the_autoencoder_gives_none() -> None:
    tiny = Family.tiny()
    assert tiny.encode_text(["a cat"]).states.requires_grad
    assert not tiny.encode_media(torch.zeros(1, 3, 16, 16)).requires_grad
    assert not tiny.decode_media(torch.zeros(1, 4, 2, 2)).requires_grad


def test_blocks_hold_every_residual_block_and_attention_once_in_order() -> None:
    tiny = Family.tiny()
    unet: Any = tiny.parts()["denoiser"]
    wanted = [id(m) for m in unet.modules() if type(m).__name__ in ("ResnetBlock2D", "Transformer2DModel")]
    units = list(tiny.blocks())
    assert sorted(id(m) for unit in units for m in unit) == sorted(wanted)
    assert units[0] == (unet.down_blocks[0].resnets[0], unet.down_blocks[0].attentions[0])
    assert units[-1] == (unet.up_blocks[-1].resnets[-1], unet.up_blocks[-1].attentions[-1])
    seen: list[int] = []
    for module in (m for unit in units for m in unit):
        module.register_forward_hook(lambda m, *_: seen.append(id(m)))
    text = tiny.encode_text(["x"])
    tiny.predict(_noised(torch.zeros(1, 4, 8, 8), torch.tensor([1])), tiny.condition(text, None))
    assert seen == [id(m) for unit in units for m in unit]


# captions


def test_captions_that_do_not_fit_are_counted(family: Family) -> None:
    fitting, longer = " ".join(["red"] * 75), " ".join(["red"] * 80)
    assert family.lost_tokens([fitting, longer, ""]) == (0, 5, 0)
    assert family.lost_tokens([]) == ()
    states = family.encode_text([fitting, longer]).states
    within(states[0], states[1], roundings=128)  # the place in a batch may change the order of sums
    assert apart(states[0], family.encode_text([" ".join(["red"] * 74)]).states[0]) > 1e4


# what the folder's small files say


def test_the_prediction_is_the_recipes_else_the_schedulers(copy: Path) -> None:
    def prediction(**settings: Any) -> str:
        return Family.of(ModelSettings(path=copy, **settings), only=[]).prediction

    assert prediction() == "epsilon"
    _edit(copy / "scheduler" / "scheduler_config.json", prediction_type="v_prediction")
    assert prediction() == "v"
    assert prediction(prediction="epsilon") == "epsilon"
    _edit(copy / "scheduler" / "scheduler_config.json", prediction_type="sample")
    with pytest.raises(WeightsError, match="'sample'") as caught:
        prediction()
    assert caught.value.code == "E1409"


def test_an_old_autoencoder_that_does_not_tell_its_scale_has_the_usual_one(copy: Path) -> None:
    config = json.loads((copy / "vae" / "config.json").read_text())
    del config["scaling_factor"]
    (copy / "vae" / "config.json").write_text(json.dumps(config))
    assert "scale=0.18215" in Family.files.of(ModelSettings(path=copy)).media_identity()


def test_a_shifted_autoencoder_is_encoded_and_decoded_with_its_shift(copy: Path, family: Family) -> None:
    _edit(copy / "vae" / "config.json", shift_factor=0.5, scaling_factor=2.0)
    shifted = Family.of(ModelSettings(path=copy), only=["vae"])
    pixels = torch.zeros(1, 3, 16, 16)
    mean, std = family.encode_media(pixels).chunk(2, dim=1)
    moved, spread = shifted.encode_media(pixels).chunk(2, dim=1)
    torch.testing.assert_close(moved, (mean / 0.18215 - 0.5) * 2.0)
    torch.testing.assert_close(spread, std / 0.18215 * 2.0)
    torch.testing.assert_close(shifted.decode_media(moved), family.decode_media(mean))


@pytest.mark.parametrize(
    ("name", "values", "words", "code"),
    [
        ("unet/config.json", {"in_channels": 9}, "inpainting", "E1406"),
        ("unet/config.json", {"cross_attention_dim": 2048}, "SDXL", "E1406"),
        ("model_index.json", {"text_encoder_2": ["transformers", "CLIPTextModel"]}, "SDXL", "E1406"),
        ("text_encoder/config.json", {"hidden_size": 48}, "text of width 32, the other part says 48", "E1409"),
        ("vae/config.json", {"latent_channels": 16}, "different models", "E1409"),
        ("unet/config.json", {"layers_per_block": 1}, "unexpected: ", "E1405"),
        ("unet/config.json", {"block_out_channels": [16, 32, 32, 64]}, "of another shape: ", "E1405"),
        ("unet/config.json", {"down_block_types": ["NoSuchBlock"] * 4}, "makes no network", "E1409"),
    ],
)
def test_a_model_of_another_kind_is_refused_by_name(
    copy: Path, name: str, values: dict[str, Any], words: str, code: str
) -> None:
    _edit(copy / name, **values)
    with pytest.raises(WeightsError, match=words) as caught:
        Family.of(ModelSettings(path=copy))
    assert caught.value.code == code
    assert str(copy) in caught.value.message


def test_paths_that_are_no_model_folder_are_refused_by_name(copy: Path, tmp_path: Path) -> None:
    cases = {
        tmp_path / "nowhere": ("E1401", "not there"),
        copy / "vae": ("E1406", "autoencoder"),
        copy / "unet" / "diffusion_pytorch_model.safetensors": ("E1406", "a denoiser alone"),
        tmp_path: ("E1406", "without model_index.json"),
    }
    for path, (code, words) in cases.items():
        with pytest.raises(WeightsError, match=words) as caught:
            Family.of(ModelSettings(path=path))
        assert caught.value.code == code


@pytest.mark.parametrize("component", ["unet", "vae", "text_encoder", "tokenizer", "scheduler"])
def test_a_missing_component_is_named(copy: Path, component: str) -> None:
    shutil.rmtree(copy / component)
    with pytest.raises(WeightsError, match=f"lacks {component}/") as caught:
        Family.of(ModelSettings(path=copy), only=["denoiser"])
    assert caught.value.code == "E1409"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("merges.txt", None, "lacks merges.txt"),
        ("vocab.json", None, "vocab.json"),
        ("vocab.json", "{", "not JSON"),
        ("vocab.json", '{"a": 0}', "makes no tokenizer"),
    ],
)
def test_a_damaged_tokenizer_is_named(copy: Path, name: str, content: str | None, words: str) -> None:
    path = copy / "tokenizer" / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(WeightsError, match=words) as caught:
        Family.of(ModelSettings(path=copy), only=["text_encoder"]).encode_text(["a"])
    assert caught.value.code == "E1409"


def test_a_tokenizer_of_another_model_is_refused(copy: Path) -> None:
    path = copy / "tokenizer" / "vocab.json"
    _edit(path, **{f"new{i}": 713 + i for i in range(7)})
    with pytest.raises(WeightsError, match="720 tokens, the text encoder knows 713"):
        Family.of(ModelSettings(path=copy), only=["text_encoder"]).encode_text(["a"])


def test_a_clip_skip_that_leaves_no_layer_is_refused() -> None:
    with pytest.raises(WeightsError, match="at most 2") as caught:
        Family.of(ModelSettings(path=FOLDER, clip_skip=3))
    assert caught.value.code == "E1409"
