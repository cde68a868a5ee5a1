"""Family sdxl: the same numbers as diffusers' pipeline, the order of sizes, the crop, other models rejected by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl_img2img import (
    StableDiffusionXLImg2ImgPipeline,
)
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.errors import WeightsError
from mezzotint.families import sd
from mezzotint.families.sdxl import Family
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Batch, Framing, Noised, TextEmbedding
from mezzotint.weights.folder.model_folder import open_folder, shipped_folder
from mezzotint.weights.layouts import sdxl as layout
from support.loading import open_loader
from support.model_export import export_model, in_one_file, load_model
from support.sd_folder import edit

ENCODERS = ("text_encoder", "text_encoder_2")


@pytest.fixture(scope="module")
def family(sdxl_folder: Path) -> Family:
    return load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))


@pytest.fixture(scope="module")
def refiner(refiner_folder: Path) -> Family:
    return load_model(Family, ModelSettings(family="sdxl", path=refiner_folder, weights="random"))


@pytest.fixture(scope="module")
def pipeline(sdxl_folder: Path) -> Any:
    return StableDiffusionXLPipeline.from_pretrained(str(sdxl_folder), local_files_only=True)


@pytest.fixture
def copy(sdxl_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sdxl_folder, tmp_path / "model"))


def _noised(x: Tensor, t: Tensor) -> Noised:
    return Noised(x_0=x, noise=x, x_t=x, model_input=x, model_t=t, level=t.float())


def _framing(*numbers: int, negative: list[bool] | None = None) -> Framing:
    line = torch.tensor([numbers])
    sizes = None if negative is None else torch.tensor(negative)
    return Framing(line[:, 0:2], line[:, 2:4], line[:, 4:6], sizes)


@pytest.mark.parametrize("caption", ["a red circle", "", "red " * 100])
@torch.no_grad()
def test_text_embeddings_equal_those_of_diffusers(family: Family, pipeline: Any, caption: str) -> None:
    states, _, pooled, _ = pipeline.encode_prompt(caption, device="cpu", do_classifier_free_guidance=False)
    text = family.encode_text([caption])
    assert text.states.shape == (1, 77, 32 + 48)
    assert torch.equal(text.states, states)
    assert text.pooled is not None
    torch.testing.assert_close(text.pooled, pooled, rtol=1e-5, atol=1e-6)
    assert text.mask is None


@torch.no_grad()
def test_clip_skip_counts_from_the_penultimate_layer(pipeline: Any, sdxl_folder: Path) -> None:
    skipping = load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder, clip_skip=1), only=ENCODERS)
    states, _, pooled, _ = pipeline.encode_prompt("x", device="cpu", do_classifier_free_guidance=False, clip_skip=1)
    text = skipping.encode_text(["x"])
    assert torch.equal(text.states, states)
    assert text.pooled is not None
    torch.testing.assert_close(text.pooled, pooled, rtol=1e-5, atol=1e-6)
    with pytest.raises(WeightsError, match="at most 1") as caught:
        load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder, clip_skip=2), only=[])
    assert caught.value.code == "E1409"


@torch.no_grad()
def test_prediction_and_size_conditioning_equal_those_of_diffusers(family: Family, pipeline: Any) -> None:
    x, t = torch.randn(1, 4, 16, 24, generator=torch.Generator().manual_seed(0)), torch.tensor([500])
    text = family.encode_text(["a red circle"])
    condition = family.condition(text, None, _framing(640, 480, 3, 5, 128, 192))
    ours = family.predict(_noised(x, t), condition)
    sizes = pipeline._get_add_time_ids((640, 480), (3, 5), (128, 192), torch.float32, 40)
    added = {"text_embeds": text.pooled, "time_ids": sizes}
    stock = pipeline.unet(x, t, encoder_hidden_states=text.states, added_cond_kwargs=added).sample
    assert torch.equal(ours, stock)
    assert condition.vector is not None
    assert condition.vector.tolist() == [[640, 480, 3, 5, 128, 192]], "height first, top first"


@pytest.mark.parametrize("place", range(6))
@torch.no_grad()
def test_each_number_of_the_size_conditioning_reaches_the_denoiser(family: Family, place: int) -> None:
    x, t = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([500])
    text = family.encode_text(["x"])
    numbers = [64, 64, 0, 0, 64, 64]
    before = family.predict(_noised(x, t), family.condition(text, None, _framing(*numbers)))
    numbers[place] += 8
    after = family.predict(_noised(x, t), family.condition(text, None, _framing(*numbers)))
    assert float((before - after).abs().max()) > 1e-5


@torch.no_grad()
def test_sizes_are_exact_with_a_bfloat16_denoiser(sdxl_folder: Path) -> None:
    half = load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))
    unet: Any = half.parts()["denoiser"].bfloat16()
    seen: list[Tensor] = []
    unet.add_time_proj.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    text = half.encode_text(["x"])
    condition = half.condition(text, None, _framing(1023, 769, 257, 0, 1025, 771))
    out = half.predict(_noised(torch.zeros(1, 4, 8, 8), torch.tensor([1])), condition)
    assert out.dtype == torch.bfloat16
    assert seen[0].tolist() == [1023, 769, 257, 0, 1025, 771]


def _batches(root: Path, **changes: Any) -> list[Batch]:
    values = {"path": [root], "resolution": 64, "buckets": {"step": 16}, "batch_size": 1, "workers": 0} | changes
    settings = DataSettings.model_validate(values)
    catalogue = catalogues.build(settings, root.parent / "index", workers=1)
    rows = np.arange(len(catalogue), dtype=np.int32)
    steps = range(len(catalogue))
    loader = open_loader(
        catalogue, rows, settings, accumulation=1, seed=3, start_step=0, last_step=len(steps),
        rank=0, world_size=1, device=torch.device("cpu"),
    )  # fmt: skip
    return [batch for step in loader for batch in step.batches]


def test_size_conditioning_has_the_rotated_size_and_the_crop(family: Family, tmp_path: Path) -> None:
    """A file of 200 x 100 that EXIF rotates: its height is 200. A ramp shows the cropped rows."""
    (tmp_path / "images").mkdir()
    ramp = np.repeat(np.linspace(0, 255, 200, dtype=np.uint8)[None, :, None], 100, axis=0).repeat(3, axis=2)
    image = Image.fromarray(ramp)
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned a quarter to the right
    image.save(tmp_path / "images" / "turned.png", exif=exif)
    (tmp_path / "images" / "turned.txt").write_text("a ramp")
    for flip in (0.0, 1.0):
        [batch] = _batches(tmp_path / "images", crop="random", flip=flip, buckets={"shape": "square", "step": 16})
        vector = family.condition(family.encode_text([""]), batch).vector
        assert vector is not None
        top = int(vector[0, 2])
        assert 0 < top < 64, "sampled along the longer side"
        assert vector.tolist() == [[200, 100, top, 0, 64, 64]], "a mirror changes no number"
        assert batch.pixels is not None
        shown = (batch.pixels[0].mean(dim=(0, 2)) + 1) / 2  # by row, from 0 to 1 over the 128 rows of the resized ramp
        expected = (torch.arange(64) + top + 0.5) / 128
        assert float((shown - expected).abs().max()) < 0.02


@torch.no_grad()
def test_refiner_has_one_text_encoder_and_an_aesthetic_score(refiner: Family) -> None:
    assert refiner.parts().keys() == {"denoiser", "text_encoder_2", "vae"}
    assert refiner.text_parts == ("text_encoder_2",)
    text = refiner.encode_text(["a red circle", ""])
    assert text.states.shape == (2, 77, 48)
    framing = Framing(*(torch.tensor([[64, 48]] * 2) for _ in range(3)), torch.tensor([True, False]))
    condition = refiner.condition(text, None, framing)
    assert condition.vector is not None
    assert condition.vector.tolist() == [[64, 48, 64, 48, 2.5], [64, 48, 64, 48, 6.0]]
    own = refiner.condition(text, None).vector
    assert own is not None
    assert own.tolist() == [[128, 128, 0, 0, 6.0]] * 2
    assert refiner.predict(_noised(torch.zeros(2, 4, 8, 8), torch.tensor([1, 2])), condition).shape == (2, 4, 8, 8)


def test_exported_refiner_opens_in_the_diffusers_pipeline(refiner: Family, tmp_path: Path) -> None:
    export_model(refiner, tmp_path / "out", {})
    opened: Any = StableDiffusionXLImg2ImgPipeline.from_pretrained(str(tmp_path / "out"), local_files_only=True)
    assert opened.text_encoder is None
    assert opened.config.requires_aesthetics_score
    again = load_model(Family, ModelSettings(family="sdxl", path=tmp_path / "out"))
    assert again.parts().keys() == refiner.parts().keys()
    assert torch.equal(again.encode_text(["x"]).states, refiner.encode_text(["x"]).states)


def test_sampling_conditions_on_the_generated_size(refiner: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors: list[Tensor] = []
    plain = Family.condition

    def watched(self: Family, text: TextEmbedding, batch: Any, framing: Framing | None = None) -> Any:
        condition = plain(self, text, batch, framing)
        assert condition.vector is not None
        vectors.append(condition.vector)
        return condition

    monkeypatch.setattr(Family, "condition", watched)
    requests = [Request("a", Size(64, 32), seed=n) for n in range(2)]
    guided = Sampling(refiner.schedule, "epsilon", "cpu", SampleSettings(steps=1, solver="ddim", guidance=(5.0,)))
    sample_latents(refiner, requests, guided)
    assert vectors[0].tolist() == [[32, 64, 0, 0, 2.5]] * 2 + [[32, 64, 0, 0, 6.0]] * 2, "negatives first"
    plain_text = SampleSettings(steps=1, solver="ddim", guidance=(1.0,))
    sample_latents(refiner, requests, replace(guided, settings=plain_text))
    assert vectors[-1].tolist() == [[32, 64, 0, 0, 6.0]] * 2


def test_tiny_model_is_small_complete_and_deterministic() -> None:
    tiny, again = Family.tiny(3), Family.tiny(3)
    sizes = {name: sum(p.numel() for p in part.parameters()) for name, part in tiny.parts().items()}
    assert sizes.keys() == {"denoiser", *ENCODERS, "vae"}
    assert sum(sizes.values()) < 1_000_000
    for name, part in tiny.parts().items():
        assert all(torch.equal(a, b) for a, b in zip(part.parameters(), again.parts()[name].parameters(), strict=True))
    assert len({*tiny.encode_text(["a red circle", "a blue circle", ""]).states.flatten(1).mean(1).tolist()}) == 3
    assert tiny.encode_text([]).states.shape == (0, 77, 80)
    assert float(tiny.decode_media(torch.zeros(1, 4, 4, 4)).abs().max()) <= 1


def test_gradients_reach_both_text_encoders() -> None:
    tiny = Family.tiny()
    text = tiny.encode_text(["a red circle"])
    out = tiny.predict(_noised(torch.ones(1, 4, 8, 8), torch.tensor([500])), tiny.condition(text, None))
    out.square().mean().backward()
    idle = {
        f"{part}/{name.removeprefix('text_model.')}"
        for part in ENCODERS
        for name, parameter in tiny.parts()[part].named_parameters()
        if parameter.grad is None
    }
    assert idle
    assert all(name.startswith(("text_encoder/encoder.layers.2.", "text_encoder/final_layer_norm.")) for name in idle)
    assert tiny.parts()["text_encoder_2"].get_parameter("text_projection.weight").grad is not None


def test_blocks_contain_each_residual_and_attention_module_once() -> None:
    tiny = Family.tiny()
    unet: Any = tiny.parts()["denoiser"]
    expected = [id(m) for m in unet.modules() if type(m).__name__ in ("ResnetBlock2D", "Transformer2DModel")]
    units = list(tiny.blocks())
    assert sorted(id(m) for unit in units for m in unit) == sorted(expected)
    seen: list[int] = []
    for module in (m for unit in units for m in unit):
        module.register_forward_hook(lambda m, *_: seen.append(id(m)))
    tiny.predict(_noised(torch.zeros(1, 4, 8, 8), torch.tensor([1])), tiny.condition(tiny.encode_text(["x"]), None))
    assert seen == [id(m) for unit in units for m in unit]


def test_truncated_tokens_are_counted_over_both_tokenizers(family: Family, copy: Path) -> None:
    assert family.lost_tokens(["red " * 80, "a cat", ""]) == (5, 0, 0)
    assert family.lost_tokens([]) == ()
    for name in ("merges.txt", "vocab.json"):
        shutil.copy(shipped_folder("tiny-sd") / "tokenizer" / name, copy / "tokenizer_2" / name)
    (copy / "tokenizer_2" / "merges.txt").write_text("#version: 0.2\n")  # ByteLevel has every byte
    spelling = load_model(Family, ModelSettings(family="sdxl", path=copy), only=[])
    [both] = spelling.lost_tokens(["red " * 80])
    assert both > 5, "the one that loses most counts"


def _change_tokenizer(folder: Path) -> None:
    (folder / "merges.txt").write_text("#version: 0.2\ni n\n")


def _change_encoder(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state["text_model.final_layer_norm.bias"] += 1e-3
    save_file(state, folder / "model.safetensors")


@pytest.mark.parametrize("part", ["tokenizer", "tokenizer_2", "text_encoder", "text_encoder_2"])
def test_text_settings_change_only_the_identity_of_text(copy: Path, part: str) -> None:
    settings = ModelSettings(family="sdxl", path=copy)
    before, media = Family.files.of(settings).text_identity(), Family.files.of(settings).media_identity()
    prints = {name: Family.files.of(settings).fingerprint(name) for name in ("tokenizer", *ENCODERS)}
    change: Callable[[Path], None] = _change_encoder if part in ENCODERS else _change_tokenizer
    change(copy / part)
    assert Family.files.of(settings).text_identity() != before
    assert "\n" not in before
    assert Family.files.of(settings).media_identity() == media
    changed = {name for name, value in prints.items() if Family.files.of(settings).fingerprint(name) != value}
    assert changed == {part if part in ENCODERS else "tokenizer"}


def test_part_that_the_refiner_lacks_is_named(refiner_folder: Path, sdxl_folder: Path) -> None:
    without = ModelSettings(family="sdxl", path=refiner_folder, weights="random")
    assert len(Family.files.of(without).fingerprint("text_encoder")) == 64
    assert Family.files.of(without).fingerprint("text_encoder") != Family.files.of(without).fingerprint(
        "text_encoder_2"
    )
    assert load_model(Family, without, only=ENCODERS).parts().keys() == {"text_encoder_2"}


@pytest.mark.parametrize(
    ("name", "values", "words", "code"),
    [
        ("unet/config.json", {"in_channels": 5}, "depth-to-image", "E1406"),
        ("unet/config.json", {"cross_attention_dim": 96}, "text of width 96, the other part has 80", "E1409"),
        ("unet/config.json", {"addition_embed_type": "text"}, "more than text by text", "E1409"),
        (
            "unet/config.json", {"projection_class_embeddings_input_dim": 80},
            "text and sizes of width 80, the other part has 88", "E1409",
        ),
        ("text_encoder_2/config.json", {"projection_dim": 48}, "the other part has 96", "E1409"),
        ("text_encoder_2/config.json", {"vocab_size": 100}, "the text encoder has 100", "E1409"),
        ("scheduler/scheduler_config.json", {"prediction_type": "sample"}, "family sdxl supports", "E1409"),
    ],
)  # fmt: skip
def test_mismatched_components_are_refused_by_name(
    copy: Path, name: str, values: dict[str, Any], words: str, code: str
) -> None:
    edit(copy / name, **values)
    with pytest.raises(WeightsError, match=words) as caught:
        load_model(Family, ModelSettings(family="sdxl", path=copy), only=[]).lost_tokens(["x"])
    assert caught.value.code == code


def test_model_of_the_other_family_is_refused_by_name(sdxl_folder: Path) -> None:
    with pytest.raises(WeightsError, match=r"is SD 1\.x .*family sdxl trains SDXL's base model") as caught:
        load_model(Family, ModelSettings(family="sdxl", path=shipped_folder("tiny-sd"), weights="random"))
    assert caught.value.code == "E1406"
    with pytest.raises(WeightsError, match=r"is SDXL .*family sd trains") as caught:
        load_model(sd.Family, ModelSettings(path=sdxl_folder))
    assert caught.value.code == "E1406"


def test_incomplete_base_model_is_not_taken_for_a_refiner(copy: Path) -> None:
    shutil.rmtree(copy / "text_encoder")
    with pytest.raises(WeightsError, match="lacks text_encoder/") as caught:
        load_model(Family, ModelSettings(family="sdxl", path=copy))
    assert caught.value.code == "E1409"


def test_diffusers_pipeline_opens_an_export_with_trained_weights(sdxl_folder: Path, tmp_path: Path) -> None:
    family = load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))
    weights = {
        f"{part}/{name}": tensor + 0.01
        for part in ("denoiser", "text_encoder_2")
        for name, tensor in family.parts()[part].state_dict().items()
    }
    out = export_model(family, tmp_path / "out", weights)
    opened: Any = StableDiffusionXLPipeline.from_pretrained(str(out), local_files_only=True)
    for part, module in (("denoiser", opened.unet), ("text_encoder_2", opened.text_encoder_2)):
        assert all(torch.equal(t, weights[f"{part}/{name}"]) for name, t in module.state_dict().items())
    for path in (sdxl_folder / "text_encoder").iterdir():
        assert (out / "text_encoder" / path.name).read_bytes() == path.read_bytes()


def test_single_file_holds_the_same_model_and_is_exported_again(
    sdxl_folder: Path, family: Family, tmp_path: Path
) -> None:
    folder = open_folder(sdxl_folder)
    tensors = {}
    for name in layout.LAYOUT.networks:
        place = folder.weights(name)
        assert place is not None
        tensors[name] = load_file(place.path)
    file = tmp_path / "model.safetensors"
    save_file(in_one_file(layout.LAYOUT, folder, tensors), file)
    settings = ModelSettings(family="sdxl", path=file, config=sdxl_folder)
    single = load_model(Family, settings)
    for part, module in family.parts().items():
        for name, tensor in module.state_dict().items():
            assert torch.equal(single.parts()[part].state_dict()[name], tensor)
    out = export_model(single, tmp_path / "out", {})
    again = load_model(Family, ModelSettings(family="sdxl", path=out))
    assert torch.equal(again.encode_text(["x"]).states, family.encode_text(["x"]).states)
    assert Family.files.of(settings).text_identity() == Family.files.of(settings).text_identity()
    with pytest.raises(WeightsError, match=r"model\.config=FOLDER"):
        load_model(Family, ModelSettings(family="sdxl", path=file))


def test_base_model_file_is_refused_with_configurations_of_the_refiner(
    sdxl_folder: Path, refiner_folder: Path, tmp_path: Path
) -> None:
    folder = open_folder(sdxl_folder)
    places = {name: folder.weights(name) for name in layout.LAYOUT.networks}
    tensors = {name: load_file(place.path) for name, place in places.items() if place is not None}
    save_file(in_one_file(layout.LAYOUT, folder, tensors), tmp_path / "model.safetensors")
    settings = ModelSettings(family="sdxl", path=tmp_path / "model.safetensors", config=refiner_folder)
    with pytest.raises(WeightsError, match=r"configurations in .* are for another model") as caught:
        load_model(Family, settings)
    assert caught.value.code == "E1414"
