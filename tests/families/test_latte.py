"""LatteT2V as a family: its files in every layout, captions by T5, clips and stills joined, exports that open."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.transformers.latte_transformer_3d import LatteTransformer3DModel
from model_export import export_model, load_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import T5Config, T5EncoderModel

from mezzotint.assets import MODELS
from mezzotint.errors import MezzotintError, WeightsError
from mezzotint.families.base import posterior_sample
from mezzotint.families.latte import Family
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.stages import Condition, Noised, TextEmbedding
from mezzotint.weights.files import mindspore
from mezzotint.weights.files.tensor_files import read_header
from mezzotint.weights.folder import t5
from mezzotint.weights.folder.model_folder import shipped
from mezzotint.weights.kinds import refusal
from mezzotint.weights.single_file.single_file import family_at


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model as Open-Sora-Plan lays its own out: denoisers by length, the autoencoder beside them, T5 apart."""
    root = tmp_path_factory.mktemp("latte")
    family = Family.tiny(seed=3)
    for part, folder in (("denoiser", "5x64x64"), ("vae", "vae"), ("text_encoder", "t5")):
        (root / folder).mkdir()
        where = shipped("tiny-latte") / {"denoiser": ".", "vae": "vae", "text_encoder": "text_encoder"}[part]
        shutil.copy(where / "config.json", root / folder)
        tensors = {n: t.contiguous() for n, t in family.parts()[part].state_dict().items()}
        name = "model" if part == "text_encoder" else "diffusion_pytorch_model"
        save_file(tensors, root / folder / f"{name}.safetensors")
    for file in (shipped("tiny-latte") / "tokenizer").iterdir():
        shutil.copy(file, root / "t5")
    return root


def settings(released: Path, **changes: Any) -> ModelSettings:
    told = {"family": "latte", "path": released / "5x64x64", "text_encoder": released / "t5"} | changes
    return ModelSettings(**told)


def same(one: Family, other: Family) -> bool:
    return all(
        torch.equal(tensor, other.parts()[part].state_dict()[name])
        for part, module in one.parts().items()
        for name, tensor in module.state_dict().items()
    )


def noised(x: Tensor, *timesteps: int) -> Noised:
    t = torch.tensor(timesteps)
    return Noised(x, x, x, x, t, t.float())


def test_a_released_folder_is_read_with_its_neighbours(released: Path) -> None:
    family = Family.of(settings(released))
    assert same(family, Family.tiny(seed=3))
    assert (family.prediction, family.grid.frames, family.schedule.num_timesteps) == ("epsilon", 4, 1000)
    torch.testing.assert_close(family.schedule.betas()[[0, -1]], torch.tensor([1e-4, 2e-2]))
    assert not family.notes
    only = Family.of(settings(released, text_encoder=None), only=["denoiser", "vae"])
    assert set(only.parts()) == {"denoiser", "vae"}
    assert sum(p.numel() for m in family.parts().values() for p in m.parameters()) < 1_000_000


@pytest.mark.usefixtures("pickles_read_here")
def test_diffusers_layout_torch_files_and_the_ports_files_are_the_same_model(
    released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tensors = load_file(released / "5x64x64" / "diffusion_pytorch_model.safetensors")
    plain = {n: t for n, t in tensors.items() if n != "caption_projection.y_embedding"}
    (tmp_path / "model" / "transformer").mkdir(parents=True)
    told = json.loads((shipped("tiny-latte") / "config.json").read_text())
    told |= {"_class_name": "LatteTransformer3DModel", "sample_size": 8}
    told.pop("model_max_length")
    (tmp_path / "model" / "transformer" / "config.json").write_text(json.dumps(told))
    save_file(plain, tmp_path / "model" / "transformer" / "diffusion_pytorch_model.safetensors")
    torch.save({"model": tensors, "step": 3}, tmp_path / "epoch.pt")
    port = {f"network.{n}": t for n, t in tensors.items()} | {"network.temp_pos_embed": torch.zeros(1, 5, 48)}
    mindspore.write(tmp_path / "port.ckpt", port)
    wanted = Family.of(settings(released), only=["denoiser"])
    assert wanted.parts()["denoiser"].config.model_max_length == 24
    config, vae = shipped("tiny-latte"), released / "vae"
    for path in ("model", "epoch.pt", "port.ckpt"):
        asked = settings(released, path=tmp_path / path, config=None if path == "model" else config, vae=vae)
        found = Family.of(asked, only=["denoiser"])
        for name, tensor in found.parts()["denoiser"].state_dict().items():
            if name != "caption_projection.y_embedding":
                assert torch.equal(tensor, wanted.parts()["denoiser"].state_dict()[name]), (path, name)
        assert bool(found.notes) == (path == "port.ckpt")
    assert "temp_pos_embed" in found.notes[0]


def test_captions_are_what_t5_itself_says(released: Path) -> None:
    family = Family.of(settings(released), only=["text_encoder"])
    config = T5Config.from_pretrained(str(released / "t5"))
    theirs = T5EncoderModel.from_pretrained(str(released / "t5"), config=config, local_files_only=True).eval()
    told = family.encode_text(["a red ball and a cat", ""])
    assert told.states.shape == (2, 24, 32)
    assert told.mask is not None
    assert told.mask.sum(1).tolist() == [7, 1]
    ids = family._words()(["a red ball and a cat", ""], padding="max_length", max_length=24, return_tensors="pt")
    with torch.no_grad():
        wanted = theirs(ids.input_ids, attention_mask=ids.attention_mask).last_hidden_state
    torch.testing.assert_close(told.states, wanted, rtol=0, atol=1e-5)
    assert family.encode_text([]).states.shape == (0, 24, 32)
    assert family.lost_tokens(["cat " * 40, "cat"]) == (17, 0)
    short = Family.of(settings(released, max_tokens=5), only=["text_encoder"]).encode_text(["a red ball and a cat"])
    assert short.states.shape == (1, 5, 32)


def test_t5_in_float16_keeps_its_last_layers_wide(released: Path) -> None:
    family = Family.of(settings(released), only=["text_encoder"])
    encoder: Any = family.parts()["text_encoder"]
    wanted = family.encode_text(["a cat"]).states
    with torch.no_grad():
        for block in encoder.encoder.block:  # what is after its inner product exceeds float16
            block.layer[-1].DenseReluDense.wi_0.weight *= 2000
            block.layer[-1].DenseReluDense.wi_1.weight *= 2000
    encoder.half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = family.encode_text(["a cat"]).states
    assert found.dtype == torch.float16
    assert encoder.encoder.block[0].layer[-1].DenseReluDense.wo.weight.dtype == torch.float32
    assert encoder.encoder.block[0].layer[0].SelfAttention.q.weight.dtype == torch.float16
    assert found.shape == wanted.shape


def test_a_vocabulary_of_sentencepiece_is_read_without_it(tmp_path: Path) -> None:
    from transformers.utils import sentencepiece_model_pb2_new as pb  # of protobuf, which transformers brings

    proto = pb.ModelProto()
    for piece, score in (("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁a", -2.0), ("▁cat", -3.0), ("s", -4.0)):
        proto.pieces.add(piece=piece, score=score)
    (tmp_path / "spiece.model").write_bytes(proto.SerializeToString())
    found = t5.tokenizer_in(tmp_path, vocabulary=128)
    assert found(["a cats"], padding="max_length", max_length=6).input_ids == [[3, 4, 5, 1, 0, 0]]
    assert len(found) == 6 + 100
    (tmp_path / "spiece.model").write_bytes(proto.SerializeToString()[:-3])
    with pytest.raises(WeightsError, match="makes no tokenizer") as met:
        t5.tokenizer_in(tmp_path, vocabulary=128)
    assert met.value.code == "E1463"


def test_clips_and_stills_become_moments_and_pixels_again(released: Path) -> None:
    family = Family.of(settings(released, text_encoder=None), only=["vae"])
    rng = torch.Generator().manual_seed(0)
    clips = torch.rand(2, 3, 9, 32, 48, generator=rng) * 2 - 1
    moments = family.encode_media(clips)
    assert moments.shape == (2, 8, 3, 4, 6)
    one = family.encode_media(clips[1:])
    torch.testing.assert_close(moments[1:], one, rtol=0, atol=1e-6)
    stills = family.encode_media(clips[:, :, 0])
    torch.testing.assert_close(stills, family.encode_media(clips[:, :, :1])[:, :, 0], rtol=0, atol=1e-6)
    vae: Any = family.parts()["vae"]
    mean, log_variance = vae.encode(clips).chunk(2, dim=1)
    torch.testing.assert_close(moments[:, :4], mean.detach() * 0.18215, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moments[:, 4:], (log_variance.detach() / 2).exp() * 0.18215, rtol=1e-5, atol=1e-6)
    assert family.encode_media(clips[:0]).shape == (0, 8, 3, 4, 6)
    assert family.decode_media(moments[:, :4]).shape == clips.shape
    assert family.decode_media(stills[:, :4]).shape == (2, 3, 32, 48)


def test_stills_that_are_joined_are_told_their_own_captions(released: Path) -> None:
    family = Family.of(settings(released))
    network: Any = family.parts()["denoiser"]
    text = family.encode_text(["a dog", "a red cat"])
    stills = family.encode_text(["a ball", "a moon", "", "a star on a hill"])
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(2, 4, 4, 4, 4, generator=rng)  # two latent frames and two stills
    masks = {"latents": torch.ones(2, 4, 4, 4)}
    masks["latents"][1, :, 2:] = 0
    with torch.no_grad():
        found = family.predict(noised(x, 5, 700), Condition(text, stills=stills, masks=masks))
        rows = [torch.cat([text.states[b : b + 1], stills.states[2 * b : 2 * b + 2]]) for b in range(2)]
        marks = [torch.cat([text.mask[b : b + 1], stills.mask[2 * b : 2 * b + 2]]) for b in range(2)]  # type: ignore[index]
        wanted = network(
            x, torch.tensor([5, 700]), torch.stack(rows), text_mask=torch.stack(marks),
            latent_mask=masks["latents"], use_image_num=2,
        )  # fmt: skip
        assert torch.equal(found, wanted)
        other = family.predict(noised(x, 5, 700), Condition(text, stills=family.encode_text([""] * 4), masks=masks))
    assert torch.equal(other[:, :, :2], found[:, :, :2])
    assert not torch.equal(other[:, :, 2:], found[:, :, 2:])


def test_a_picture_is_a_clip_of_one_frame_or_a_still(released: Path) -> None:
    clip = Family.of(settings(released))
    still = Family.of(settings(released, latte={"pictures": "still"}))
    network: Any = clip.parts()["denoiser"]
    text, x = clip.encode_text(["a dog"]), torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        for family, temporal in ((clip, True), (still, False)):
            wanted = network(
                x[:, :, None], torch.tensor([9]), text.states, text_mask=text.mask, temporal=temporal
            )  # fmt: skip
            assert torch.equal(family.predict(noised(x, 9), Condition(text)), wanted[:, :, 0])


def test_identities_follow_what_they_depend_on(released: Path, tmp_path: Path) -> None:
    plain = settings(released)
    parts = ("denoiser", "text_encoder", "vae", "schedule", "tokenizer")
    names = {part: Family.files.of(plain).fingerprint(part) for part in parts}
    assert len(set(names.values())) == 5
    tiled = settings(released, latte={"tiling": {"enabled": True}})
    assert Family.files.of(tiled).media_identity() != Family.files.of(plain).media_identity()
    assert Family.files.of(tiled).text_identity() == Family.files.of(plain).text_identity()
    assert Family.files.of(settings(released, max_tokens=7)).text_identity() != Family.files.of(plain).text_identity()
    assert Family.files.of(settings(released, max_tokens=7)).media_identity() == Family.files.of(plain).media_identity()
    wide = settings(released, latte={"vae_norms": "fp32"})
    assert Family.files.of(wide).media_identity() != Family.files.of(plain).media_identity()
    rope = settings(released, latte={"rope": True})
    assert Family.files.of(rope).fingerprint("denoiser") != names["denoiser"]
    shutil.copytree(released, tmp_path / "moved")
    moved = settings(tmp_path / "moved")
    assert {part: Family.files.of(moved).fingerprint(part) for part in parts} == names
    random = settings(released, weights="random")
    assert Family.files.of(random, 1).fingerprint("denoiser") != Family.files.of(random, 2).fingerprint("denoiser")
    assert Family.files.of(random).fingerprint("vae") == names["vae"]  # it has weights, which stay


def test_layers_that_shrink_keys_begin_as_means(released: Path) -> None:
    family = Family.of(settings(released, latte={"compress_kv": 2}), only=["denoiser"])
    network: Any = family.parts()["denoiser"]
    shrinking = network.transformer_blocks[1].attn1
    assert torch.equal(shrinking.sr.weight, torch.full((48, 1, 2, 2), 0.25))
    assert torch.equal(network.temporal_transformer_blocks[1].attn1.sr.weight, torch.full((48, 1, 2), 0.5))
    assert torch.equal(shrinking.norm.weight, torch.ones(48))
    assert not shrinking.sr.bias.any()
    assert "begins anew" in family.notes[0]


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"path": "."}, "E1406", "holds several models|looks like"),
        ({"path": "nowhere"}, "E1401", "is not there"),
        ({"path": "5x64x64/diffusion_pytorch_model.safetensors", "config": "vae"}, "E1406", "CausalVAEModel"),
        ({"vae": "t5"}, "E1406|E1409", "t5"),
        ({"text_encoder": "vae"}, "E1409", "text of width"),
        ({"latte": {"rope": True, "compress_kv": 2}}, "", "exclude each other"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(released: Path, changes: dict[str, Any], code: str, words: str) -> None:
    told = {k: released / v if isinstance(v, str) else v for k, v in changes.items()}
    with pytest.raises((MezzotintError, ValueError), match=words) as met:
        Family.of(settings(released, **told))
    assert getattr(met.value, "code", "") in code.split("|")


def test_files_without_their_neighbours_say_what_to_write(released: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(released / "5x64x64", alone / "inner")
    lonely = ModelSettings(family="latte", path=alone / "inner")
    Family.of(lonely, only=["denoiser"])
    for part, code, word in (("vae", "E1461", "model.vae"), ("text_encoder", "E1462", "model.text_encoder")):
        with pytest.raises(WeightsError, match=word) as met:
            Family.of(lonely, only=[part])
        assert met.value.code == code
        assert len(Family.files.of(lonely).fingerprint(part)) == 64
    (alone / "inner" / "config.json").unlink()
    file = ModelSettings(family="latte", path=alone / "inner" / "diffusion_pytorch_model.safetensors")
    with pytest.raises(WeightsError, match="latte-65f") as met:
        Family.of(file, only=["denoiser"])
    assert met.value.code == "E1460"
    full = file.model_copy(update={"config": MODELS / "latte-65f"})
    with pytest.raises(WeightsError, match=r"missing|of another shape") as met:
        Family.of(full, only=["denoiser"])
    assert met.value.code == "E1405"


def test_an_older_autoencoder_is_refused(released: Path, tmp_path: Path) -> None:
    shutil.copytree(released, tmp_path / "old")
    path = tmp_path / "old" / "vae" / "config.json"
    path.write_text(path.read_text().replace("AttnBlock3DFix", "AttnBlock3D"))
    with pytest.raises(WeightsError, match=r"v1\.0") as met:
        Family.of(settings(tmp_path / "old"))
    assert met.value.code == "E1409"


def test_an_export_opens_as_released_and_in_diffusers(released: Path, tmp_path: Path) -> None:
    base = settings(released)
    family = load_model(Family, base, only=["denoiser"])
    trained = {f"denoiser/{n}": t + 0.01 * t.sin() for n, t in family.parts()["denoiser"].named_parameters()}
    out = tmp_path / "out"
    export_model(family, out, trained)
    again = Family.of(settings(released, path=out))
    for name, tensor in again.parts()["denoiser"].named_parameters():
        assert torch.equal(tensor, trained[f"denoiser/{name}"])
    assert same(again, Family.of(settings(released, path=out, vae=released / "vae")))
    theirs = LatteTransformer3DModel.from_pretrained(str(out), subfolder="transformer", local_files_only=True)
    text = again.encode_text(["a cat", "a dog"])
    x = torch.randn(2, 4, 2, 4, 6, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        found = again.predict(noised(x, 1, 800), Condition(TextEmbedding(text.states)))
        wanted = theirs(x, torch.tensor([1, 800]), text.states).sample
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    first, second = (p / "diffusion_pytorch_model.safetensors" for p in (out, out / "transformer"))
    assert first.samefile(second)
    assert (out / "vae" / "config.json").read_bytes() == (released / "vae" / "config.json").read_bytes()
    assert not (out / "text_encoder").exists()
    assert json.loads((out / "scheduler" / "scheduler_config.json").read_text())["beta_schedule"] == "linear"


def test_an_export_that_diffusers_would_compute_otherwise_is_not_offered_to_it(tmp_path: Path) -> None:
    for name, changes in {"rope": {"rope": True}, "long": {"video_length": 56}}.items():
        asked = ModelSettings(family="latte", path=shipped("tiny-latte"), weights="random", latte=changes)
        family = load_model(Family, asked)
        out = tmp_path / name
        export_model(family, out, dtype="bf16")
        assert not (out / "transformer").exists()
        again = Family.of(ModelSettings(family="latte", path=out))  # all parts are in it: they were random
        assert again.parts()["denoiser"].config == family.parts()["denoiser"].config
        said = again.encode_text(["a cat"])
        assert said.states.isfinite().all()


def test_full_size_parts_are_described_without_their_memory(tmp_path: Path) -> None:
    xxl = json.loads((shipped("tiny-latte") / "text_encoder" / "config.json").read_text()) | {
        "d_ff": 10240, "d_kv": 64, "d_model": 4096, "num_heads": 64, "num_layers": 24, "vocab_size": 32128,
    }  # fmt: skip
    (tmp_path / "t5").mkdir()
    (tmp_path / "t5" / "config.json").write_text(json.dumps(xxl))
    from mezzotint.tasks.check.memory import described

    asked = ModelSettings(family="latte", path=MODELS / "latte-221f", text_encoder=tmp_path / "t5")
    parts = described(Family, asked)[1].parts()
    counts = {part: sum(p.numel() for p in module.parameters()) for part, module in parts.items()}
    assert counts == {"denoiser": 1_057_246_880, "text_encoder": 4_762_310_656, "vae": 246_859_499}
    assert len(parts["vae"].state_dict()) == 260
    names = parts["text_encoder"].state_dict()
    assert len(names) == 2 + 24 * 9 + 1
    assert {"shared.weight", "encoder.block.23.layer.1.DenseReluDense.wi_1.weight"} < set(names)


def test_moments_of_a_clip_are_drawn_by_address(released: Path) -> None:
    moments = torch.cat([torch.zeros(1, 4, 2, 4, 4), torch.ones(1, 4, 2, 4, 4)], dim=1)
    eps = torch.randn(1, 4, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(posterior_sample(moments, eps), eps)


def test_check_looks_at_each_part_where_it_lies(released: Path) -> None:
    from mezzotint.tasks.check._model_files import components
    from mezzotint.tasks.check.memory import described

    asked = settings(released)
    parts = described(Family, asked)[1].parts()
    found, problems = components(asked, parts)
    assert [(c.name, c.parameters > 1000, c.file.endswith(".safetensors")) for c in found] == [
        ("denoiser", True, True), ("text_encoder", True, True), ("vae", True, True),
    ]  # fmt: skip
    assert not problems
    narrow = Family.tiny().parts() | {"denoiser": torch.nn.Linear(2, 2)}
    (problem,) = components(asked, narrow)[1]
    assert problem.code == "E1405"


def test_files_say_that_they_are_of_this_family(released: Path, tmp_path: Path) -> None:
    file = released / "5x64x64" / "diffusion_pytorch_model.safetensors"
    mindspore.write(tmp_path / "port.ckpt", {f"network.{n}": t for n, t in load_file(file).items()})
    for place in (released / "5x64x64", file, tmp_path / "port.ckpt", shipped("tiny-latte")):
        assert family_at(place) == "latte"
    assert family_at(shipped("tiny-sd")) == "sd"
    refused = refusal(read_header(file), "sd")
    assert refused is not None
    assert refused.remedy == "set model.family=latte"
