"""Settings of family latte, each from its name in a recipe to what it changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import av
import pytest
import torch
from latte_folder import QUICK
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from mezzotint.cli import main
from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.tasks import assemble
from mezzotint.weights.folder.model_folder import shipped_folder
from support.clip_folders import probe


def recipe(*words: str) -> Recipe:
    plain = ("model.family=latte", "model.path=tiny-latte", "model.weights=random")
    return resolve_paths(read_text("schema: 1", overrides=[*plain, *words]))


def model(*words: str, only: tuple[str, ...] = ("denoiser",)) -> Any:
    settings = recipe(*words)
    return assemble.family_class(settings).of(settings.model, only)


def output_of(family: Family, x: Tensor) -> Tensor:
    """The output of the denoiser for latents at timestep 400 with an empty caption."""
    text = torch.zeros(len(x), 24, 32)
    t = torch.full((len(x),), 400)
    with torch.no_grad():
        network: Any = family.parts()["denoiser"]
        output: Tensor = network(x, t, text)
        return output


def clip(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


# breaks if the model's own encoder is always read
@pytest.mark.effect("model.latte.text_encoder")
def test_text_encoder_is_the_folder_of_the_t5_for_captions(tmp_path: Path) -> None:
    other = Family.tiny(seed=9).parts()["text_encoder"]
    shutil.copytree(shipped_folder("tiny-latte") / "text_encoder", tmp_path / "t5" / "text_encoder")
    shutil.copytree(shipped_folder("tiny-latte") / "tokenizer", tmp_path / "t5" / "tokenizer")
    save_file(dict(other.state_dict()), tmp_path / "t5" / "text_encoder" / "model.safetensors")
    opened = model(f"model.latte.text_encoder={tmp_path / 't5'}", only=("text_encoder",))
    assert torch.equal(opened.parts()["text_encoder"].shared.weight, other.shared.weight)
    with pytest.raises(RecipeError, match=r"no meaning for model.family=sd.*set model.family=latte"):
        read_text("schema: 1", overrides=[f"model.latte.text_encoder={tmp_path}"])


# breaks if captions keep the length of the model's configuration
@pytest.mark.effect("model.latte.max_tokens")
def test_max_tokens_limits_the_caption() -> None:
    assert model("model.latte.max_tokens=7", only=("text_encoder",)).encode_text(["a cat"]).states.shape == (1, 7, 32)
    assert model(only=("text_encoder",)).encode_text(["a cat"]).states.shape == (1, 24, 32)


# breaks if positions are only the added tables
@pytest.mark.effect("model.latte.rope")
def test_rope_rotates_queries_and_keys() -> None:
    x = clip(1, 4, 2, 8, 8)
    plain, turned = model(), model("model.latte.rope=true")
    assert (
        dict(plain.parts()["denoiser"].named_parameters()).keys()
        == dict(turned.parts()["denoiser"].named_parameters()).keys()
    )
    assert not torch.equal(output_of(plain, x), output_of(turned, x))


# breaks if the factor is read and nothing shrinks
@pytest.mark.effect("model.latte.compress_kv")
def test_compress_kv_shrinks_keys_in_the_later_half() -> None:
    blocks = model("model.latte.compress_kv=2").parts()["denoiser"].transformer_blocks
    assert [block.attn1.factor for block in blocks] == [1, 2]
    assert model("model.latte.compress_kv=1").parts()["denoiser"].config.compress_kv_factor == 1


# breaks if the configuration's own length scales them
@pytest.mark.effect("model.latte.video_length")
def test_video_length_scales_positions_in_time() -> None:
    x = clip(1, 4, 3, 4, 4)
    assert torch.equal(output_of(model(), x), output_of(model("model.latte.video_length=17"), x))
    assert not torch.equal(output_of(model(), x), output_of(model("model.latte.video_length=56"), x))


# breaks if an image is always a clip of one frame
@pytest.mark.effect("model.latte.images")
def test_images_skip_temporal_layers_as_joined_stills() -> None:
    x = clip(1, 4, 4, 4)
    t = torch.tensor([400])
    outputs = []
    for word in ("clip", "still"):
        family = model(f"model.latte.images={word}", only=("denoiser", "text_encoder"))
        with torch.no_grad():
            predicted = family.predict(Noised(x, x, x, x, t, t.float()), Condition(family.encode_text(["a cat"])))
        outputs.append(predicted)
    assert not torch.equal(*outputs)


def encoded(*words: str, side: int = 48, frames: int = 9) -> Tensor:
    family = model(*words, only=("vae",))
    pixels = torch.rand(1, 3, frames, side, side, generator=torch.Generator().manual_seed(3)) * 2 - 1
    moments: Tensor = family.encode_media(pixels)
    return moments


TILED = ("model.latte.tiling.enabled=true", "model.latte.tiling.side=32", "model.latte.tiling.frames=5")


# breaks if clips are never tiled, small ones are, or side, frames or overlap are not those of the recipe
@pytest.mark.effect(
    "model.latte.tiling.enabled", "model.latte.tiling.side", "model.latte.tiling.frames", "model.latte.tiling.overlap"
)
def test_tiling_splits_only_what_is_larger_than_a_tile() -> None:
    whole = encoded()
    assert torch.equal(encoded(TILED[0]), whole)  # a piece of 256 pixels and 65 frames
    tiled = encoded(*TILED)
    assert tiled.shape == whole.shape
    assert not torch.equal(tiled, whole)
    assert not torch.equal(encoded(*TILED, "model.latte.tiling.frames=9"), tiled)
    assert not torch.equal(encoded(*TILED, "model.latte.tiling.side=64"), tiled)
    assert not torch.equal(encoded(*TILED, "model.latte.tiling.overlap=0.5"), tiled)
    assert torch.equal(encoded(*TILED, side=32, frames=5), encoded(side=32, frames=5))
    for word, remedy in (("overlap=0.3", "write 0.25"), ("frames=8", "such as 5 or 9")):
        with pytest.raises(RecipeError, match=remedy):
            recipe(*TILED[:2], f"model.latte.tiling.{word}")


# breaks if norms compute in the dtype of the rest
@pytest.mark.effect("model.latte.vae_norms")
def test_vae_norms_can_stay_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    types = set()
    normalised = torch.group_norm

    def noted(x: Tensor, *others: Any) -> Tensor:
        types.add(x.dtype)
        return normalised(x, *others)

    monkeypatch.setattr(torch, "group_norm", noted)
    pixels = torch.rand(1, 3, 1, 32, 32, generator=torch.Generator().manual_seed(5)) * 2 - 1
    for word, expected in (("same", torch.bfloat16), ("fp32", torch.float32)):
        types.clear()
        family = model(f"model.latte.vae_norms={word}", only=("vae",))
        family.parts()["vae"].to(torch.bfloat16)
        assert family.encode_media(pixels).isfinite().all()
        assert types == {expected}


# breaks if the second half of the channels is never trained, or trained although the recipe disables it
@pytest.mark.effect("model.latte.variance")
def test_variance_adds_a_loss_for_the_second_half() -> None:
    moved = {}
    for word in ("none", "learned-range", "null"):
        settings = recipe(f"model.latte.variance={word}", "run.device=cpu")
        family = assemble.family_class(settings).of(settings.model, ("denoiser",))
        objective = assemble.objective_of(settings.objective, family.schedule, family.prediction)
        x = clip(1, 4, 2, 4, 4)
        t = torch.tensor([400])
        there = Noised(x, x, x, x, t, t.float())
        text = TextEmbedding(torch.zeros(1, 24, 32), torch.ones(1, 24, dtype=torch.int64))
        objective.loss(family.predict(there, Condition(text)), there, torch.ones(1)).total.backward()
        network: Any = family.parts()["denoiser"]
        last = network.proj_out.weight.grad  # of each latent's prediction and variance, by turns
        moved[word] = float(last.unflatten(0, (-1, 8))[:, 4:].abs().max())
    assert moved["none"] == 0
    assert moved["learned-range"] == moved["null"] > 0


def test_learned_variance_without_channels_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(shipped_folder("tiny-latte"), tmp_path / "half")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"out_channels": config["in_channels"]}))
    assert not model(f"model.path={folder}").learns_variance
    with pytest.raises(RecipeError, match="without any for a variance") as caught:
        model(f"model.path={folder}", "model.latte.variance=learned-range")
    assert caught.value.code == "E1465"


def generate(folder: Path, *words: str) -> list[Path]:
    assert main(["sample", "tiny-latte", "--prompt=a red ball", f"--out={folder}", *QUICK, *words]) == 0
    return sorted(folder.glob("*-seed*"))


# breaks if the file has another length, rate, size or codec than requested, or does not record how it was generated
@pytest.mark.effect("sample.clip.frames", "sample.clip.rate", "sample.clip.codec", "sample.clip.quality")
def test_generated_clips_record_their_settings(tmp_path: Path) -> None:
    one, two = generate(tmp_path / "h264", "--frames=7", "--rate=12.5", "--seed=3,4")
    count, width, height, rate, metadata = probe(one)
    assert (count, width, height, rate) == (7, 32, 32, 12.5)
    facts = json.loads(metadata["comment"])
    assert (facts["prompt"], facts["frames"], facts["seed"], facts["solver"]) == ("a red ball", "7", "3", "ddim")
    assert one.suffix == two.suffix == ".mp4"
    with av.open(str(one)) as container:
        assert container.streams.video[0].codec_context.name == "h264"
    with Image.open(tmp_path / "h264" / "contact.png") as sheet:
        assert sheet.width > 2 * 4 * 32
    (old,) = generate(tmp_path / "mpeg4", "--frames=7", "sample.clip.codec=mpeg4", "--seed=3")
    with av.open(str(old)) as container:
        assert container.streams.video[0].codec_context.name == "mpeg4"
    (rough,) = generate(tmp_path / "rough", "--frames=7", "--seed=3", "sample.clip.quality=31")
    assert rough.stat().st_size < one.stat().st_size
