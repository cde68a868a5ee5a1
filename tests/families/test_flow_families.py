"""What flow-matching families have in common: published sizes, adapter presets, refusals, notes, blocks, and no shared
list that names them."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import DiffusionPipeline
from safetensors.torch import load_file, save_file

from mezzotint.adapters import targets
from mezzotint.adapters.names import LayerNames
from mezzotint.cli import main
from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared.flow import FlowFamily, pack_latents, unpack_latents
from mezzotint.settings.families.base import family_spec, specs
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.shapes import Size
from mezzotint.stages import Noised
from mezzotint.weights import kinds
from mezzotint.weights.folder import components
from mezzotint.weights.model_files import ModelFiles
from support.flow_folders import tiny_flux2_dev
from support.flow_sizes import FULL
from support.model_export import export_model, load_model
from support.sd_folder import edit

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "tests" / "parity" / "data" / "flow"
STRAIGHT = tuple(spec.name for spec in specs() if spec.is_flow_matching)

BUFFERS = {"pos_embed.pos_embed"}
"""Tensors of files that are no parameters."""


def settings_of(name: str, folder: Path | None = None, **values: Any) -> ModelSettings:
    place = RECORDS / name.replace("-", "_").replace("flux2", "flux2_klein") / "model"
    return ModelSettings.model_validate({"family": name, "path": folder or place, **values})


def files_of(name: str) -> type[ModelFiles]:
    kind: type[ModelFamily] = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family
    return kind.files


@pytest.mark.parametrize("model", FULL)
def test_full_size_has_the_published_number_of_parameters(model: str) -> None:
    name, config, count = FULL[model]
    shapes = components.shapes(family_spec(name).networks["denoiser"], config, where=Path("config.json"))
    assert sum(math.prod(shape) for key, shape in shapes.items() if key not in BUFFERS) == count


@pytest.mark.parametrize("name", STRAIGHT)
def test_tiny_model_is_small_and_complete(name: str) -> None:
    family = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family.tiny()
    assert sum(p.numel() for module in family.parts().values() for p in module.parameters()) < 1_000_000
    assert not any(t.is_meta for m in family.parts().values() for t in (*m.parameters(), *m.buffers()))
    grid = family.grid
    frames = () if grid.frames == 1 else (2,)
    x = torch.zeros(2, grid.channels, *frames, 2 * grid.cell, 4 * grid.cell)
    text = family.encode_text(["a red circle", "two birds above the old wall"])
    noised = Noised(x, x, x, x, torch.full((2,), 500.0), torch.full((2,), 0.5))
    with torch.no_grad():
        velocity = family.predict(noised, family.condition(text, None))
        one = family.predict(
            Noised(*[t[:1] for t in (x, x, x, x, noised.model_t, noised.level)]),
            family.condition(family.encode_text(["a red circle"]), None),
        )
    assert velocity.shape == x.shape
    torch.testing.assert_close(velocity[:1], one, rtol=1e-4, atol=1e-5)
    assert family.encode_text([]).states.shape[0] == 0
    blocks = [module for block in family.blocks() for module in block]
    inside = {id(p) for block in blocks for p in block.parameters()}
    denoiser = family.parts()["denoiser"]
    names = "|".join(family.block_lists)
    assert inside == {id(p) for key, p in denoiser.named_parameters() if re.match(rf"({names})\.", key)}


@pytest.mark.parametrize("name", STRAIGHT)
def test_family_of_a_folder_is_detected_without_weights(name: str) -> None:
    assert kinds.family_at(settings_of(name).path) == name


_JOINT = r"attn2?\.(to_[qkv]|to_out\.0|add_[qkv]_proj|to_add_out)"
OF_BLOCKS = {
    "sd3": rf"transformer_blocks\.\d+\.({_JOINT}|ff(_context)?\.net\.(0\.proj|2))",
    "flux": rf"transformer_blocks\.\d+\.({_JOINT}|ff(_context)?\.net\.(0\.proj|2))"
    r"|single_transformer_blocks\.\d+\.(attn\.to_[qkv]|proj_mlp|proj_out)",
    "chroma": rf"transformer_blocks\.\d+\.({_JOINT}|ff(_context)?\.net\.(0\.proj|2))"
    r"|single_transformer_blocks\.\d+\.(attn\.to_[qkv]|proj_mlp|proj_out)",
    "flux2": rf"transformer_blocks\.\d+\.({_JOINT}|ff(_context)?\.linear_(in|out))"
    r"|single_transformer_blocks\.\d+\.attn\.(to_qkv_mlp_proj|to_out)",
    "qwen-image": rf"transformer_blocks\.\d+\.({_JOINT}|(img|txt)_mlp\.net\.(0\.proj|2))",
    "krea2": r"transformer_blocks\.\d+\.(attn\.(to_[qkv]|to_gate|to_out\.0)|ff\.(gate|up|down))",
    "wan": r"blocks\.\d+\.(attn[12]\.(to_[qkv]|to_out\.0)|ffn\.net\.(0\.proj|2))",
    "ltx": r"transformer_blocks\.\d+\.(attn[12]\.(to_[qkv]|to_out\.0)|ff\.net\.(0\.proj|2))",
    "z-image": r"(layers|noise_refiner|context_refiner)\.\d+\.(attention\.(to_[qkv]|to_out\.0)|feed_forward\.w[123])",
}  # fmt: skip


@pytest.mark.parametrize("name", OF_BLOCKS)
def test_adapter_presets_select_layers_of_attention_blocks(name: str) -> None:
    names = LayerNames(files_of(name).of(settings_of(name)).trainable_shapes())
    layers = [layer.path for layer in names.weights]
    own = family_spec(name).layers
    both = {layer.path for layer in targets.select_layers(names, "transformer", "attention+mlp", own)}
    assert both == {path for path in layers if re.fullmatch(OF_BLOCKS[name], path)}
    attention = {layer.path for layer in targets.select_layers(names, "transformer", "attention", own)}
    assert attention == {path for path in both if re.search(r"\.(to_|add_)", path)}
    every = {layer.path for layer in targets.select_layers(names, "transformer", "all-linear", own)}
    assert both <= every
    assert all(re.match(r"\w+\.\d+\.", path) for path in every)


@pytest.mark.parametrize("name", ["sd3", "flux"])
def test_layers_of_clip_and_denoiser_have_distinct_names(name: str) -> None:
    """Also with two encoders, as in SDXL, whose denoiser has other names in kohya's files."""
    settings = ModelSettings(family=name, path=RECORDS / name / "model")
    names = LayerNames.of(files_of(name).from_configs(settings))
    starts = {flat.split("_text_")[0] for flat in names.kohya.values() if flat.startswith("lora_te")}
    assert starts == ({"lora_te1", "lora_te2"} if name == "sd3" else {"lora_te1"})
    lookup = names.lookup("transformer")
    assert all(layer in (lookup[flat], *getattr(lookup[flat], "parts", ())) for layer, flat in names.kohya.items())
    assert not names.is_sdxl


def test_packing_keeps_its_order() -> None:
    x = torch.arange(2 * 3 * 4 * 6.0).reshape(2, 3, 4, 6)
    tokens = pack_latents(x)
    assert tokens.shape == (2, 6, 12)
    assert tokens[0, 1].tolist() == [x[0, c, r, k].item() for c in range(3) for r in (0, 1) for k in (2, 3)]
    assert torch.equal(unpack_latents(tokens, 4, 6), x)


def refusal(run: Any, code: str) -> str:
    with pytest.raises(MezzotintError) as caught:
        run()
    assert caught.value.code == code, caught.value
    return caught.value.message


@pytest.mark.parametrize("name", STRAIGHT)
def test_folder_of_another_family_is_named(name: str) -> None:
    other = STRAIGHT[(STRAIGHT.index(name) + 1) % len(STRAIGHT)]
    message = refusal(lambda: files_of(name).of(settings_of(name, settings_of(other).path)), "E1222")
    assert files_of(other).pipelines[0] in message  # type: ignore[attr-defined]
    assert f"write model.family={other}" in message


@pytest.mark.parametrize(("name", "part"), [("flux", "text_encoder_2"), ("wan", "text_encoder"), ("ltx", "tokenizer")])
def test_folder_without_text_encoder_is_refused_by_name(name: str, part: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(settings_of(name).path, tmp_path / "model"))
    shutil.rmtree(folder / part)
    assert f"lacks {part}/; download the complete model" in refusal(
        lambda: files_of(name).of(settings_of(name, folder)), "E1409"
    )


@pytest.mark.parametrize("name", STRAIGHT)
def test_stable_diffusion_names_the_family_of_a_transformer_folder(name: str) -> None:
    message = refusal(lambda: files_of("sd").of(settings_of("sd", settings_of(name).path)), "E1406")
    assert f"is a transformer model ({files_of(name).pipelines[0]}): write model.family={name};" in message  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", STRAIGHT)
def test_folder_without_transformer_is_refused_by_name(name: str, tmp_path: Path) -> None:
    source = settings_of(name).path
    folder = Path(shutil.copytree(source, tmp_path / "model", ignore=shutil.ignore_patterns("transformer")))
    message = refusal(lambda: files_of(name).of(settings_of(name, folder)), "E1409")
    assert "lacks transformer/; download the complete model" in message
    assert kinds.family_at(folder) == name
    (folder / "transformer").mkdir()
    message = refusal(lambda: files_of(name).of(settings_of(name, folder)), "E1409")
    assert f"{folder / 'transformer' / 'config.json'}: cannot be read" in message


@pytest.mark.parametrize(
    ("name", "file", "key", "value", "words"),
    [
        ("flux", "vae/config.json", "block_out_channels", None, "lacks block_out_channels"),
        ("wan", "vae/config.json", "latents_mean", None, "lacks latents_mean"),
        ("sd3", "text_encoder/config.json", "projection_dim", "abc", "has an unusable value"),
        ("z-image", "vae/config.json", "scaling_factor", "abc", "has an unusable value"),
        ("flux", "vae/config.json", "scaling_factor", -1, "has an unusable value (expected a number above 0"),
    ],
)
def test_missing_or_wrong_value_of_a_configuration_is_named(
    name: str, file: str, key: str, value: Any, words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(settings_of(name).path, folder)
    config = json.loads((folder / file).read_text("utf-8")) | {key: value}
    (folder / file).write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    kind: type[ModelFamily] = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family
    message = refusal(lambda: kind.load(files_of(name).of(settings_of(name, folder)), ()), "E1409")
    assert f"{folder}: a configuration in it {words}" in message


def test_variant_of_the_pipeline_is_refused_by_name(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(settings_of("flux").path, tmp_path / "model"))
    edit(folder / "transformer" / "config.json", _class_name="ChromaTransformer2DModel")
    edit(folder / "model_index.json", _class_name="ChromaPipeline")
    message = refusal(lambda: files_of("flux").of(settings_of("flux", folder)), "E1222")
    assert "ChromaPipeline" in message
    assert "ChromaTransformer2DModel" in message


@pytest.mark.parametrize(
    ("name", "word"), [("z-image", "model.z_image.distilled=true"), ("flux", "model.flux.distilled=true")]
)
def test_distilled_model_is_loaded_when_requested(name: str, word: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(settings_of(name).path, tmp_path / "model"))
    if name == "flux":
        edit(folder / "transformer" / "config.json", guidance_embeds=False)
    assert word in refusal(files_of(name).of(settings_of(name, folder)).require_trainable, "E1221")
    section = name.replace("-", "_")
    files_of(name).of(settings_of(name, folder, **{section: {"distilled": True}})).require_trainable()
    with_guidance = {"flux": {"guidance": None}} if name == "flux" else {}
    files_of(name).of(settings_of(name, folder, under="undoing.safetensors", **with_guidance)).require_trainable()


@pytest.mark.parametrize(
    ("name", "file", "mark", "steps", "guidance"),
    [
        ("flux", "transformer/config.json", {"guidance_embeds": False}, 4, 1.0),
        ("flux2", "model_index.json", {"is_distilled": True}, 4, 1.0),
        ("z-image", "scheduler/scheduler_config.json", {"shift": 3.0}, 8, 0.0),
    ],
)
def test_distilled_model_has_its_own_sampling_defaults(
    name: str, file: str, mark: dict[str, Any], steps: int, guidance: float, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(settings_of(name).path, tmp_path / "model"))
    undistilled = {"guidance_embeds": True, "is_distilled": False, "shift": 6.0}
    edit(folder / file, **{key: undistilled[key] for key in mark})
    text = f"schema: 1\nmodel: {{family: {name}, path: {folder}}}\n"
    usual = resolve_paths(read_text(text)).sample
    edit(folder / file, **mark)
    own = resolve_paths(read_text(text)).sample
    assert (own.steps, own.guidance) == (steps, (guidance,))
    assert usual.steps > steps
    assert usual.guidance[0] > guidance
    written = resolve_paths(read_text(text + "sample: {steps: 30}\n", overrides=["sample.guidance=[2]"])).sample
    assert (written.steps, written.guidance) == (30, (2.0,))


def test_distilled_klein_is_detected_and_sampled_without_guidance(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(settings_of("flux2").path, tmp_path / "model"))
    edit(folder / "model_index.json", is_distilled=True)
    files = files_of("flux2").of(settings_of("flux2", folder))
    assert "model.flux2.distilled=true" in refusal(files.require_trainable, "E1221")
    family = importlib.import_module("mezzotint.families.flux2").Family.load(files, ["denoiser"])
    assert "sample.guidance=1" in refusal(lambda: family.refuse_guidance(4.0), "E1220")


def test_text_encoder_of_flux2_dev_follows_from_its_files(tmp_path: Path) -> None:
    """Tensor names of older and newer versions of transformers; another template is refused."""
    folder = tiny_flux2_dev(settings_of("flux2").path, tmp_path / "model")
    files: Any = files_of("flux2").of(settings_of("flux2", folder))
    assert files.text_layers == (10, 20, 30)
    assert files_of("flux2").of(settings_of("flux2")).text_layers == (9, 18, 27)  # type: ignore[attr-defined]
    expected = files.network("text_encoder").state_dict()
    file = folder / "text_encoder" / "model.safetensors"
    stored = load_file(file)
    assert any("vision_tower" in key for key in stored)
    assert any("lm_head" in key for key in stored)
    newer = {re.sub(r"^language_model\.model\.", "model.language_model.", key): t for key, t in stored.items()}
    save_file(newer, file)
    ours = files.of(settings_of("flux2", folder)).network("text_encoder").state_dict()
    assert ours.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[key]) for key, tensor in ours.items())
    (folder / "tokenizer" / "chat_template.jinja").write_text("{{ raise_exception('it was run') }}")
    message = refusal(lambda: files.tokenizer("text_encoder"), "E1409")
    assert "not that of Mistral Small 3" in message
    assert "model.flux2.ignore_chat_template=true" in message
    ignoring = settings_of("flux2", folder, flux2={"ignore_chat_template": True})
    assert files.of(ignoring).tokenizer("text_encoder").padding_side == "left"


def test_text_encoder_is_extracted_from_a_full_language_model(tmp_path: Path) -> None:
    """Published text encoders are language models; Qwen2.5-VL also has a vision tower."""
    for name in ("flux2", "z-image", "qwen-image"):
        folder = Path(shutil.copytree(settings_of(name).path, tmp_path / name))
        file = folder / "text_encoder" / "model.safetensors"
        plain = {re.sub(r"^(model\.)?(language_model\.)?", "", key): t for key, t in load_file(file).items()}
        plain = {key: t for key, t in plain.items() if not key.startswith(("visual.", "lm_head."))}
        expected = files_of(name).of(settings_of(name)).network("text_encoder").state_dict()
        for prefix in ("model.", "model.language_model."):
            more = {"lm_head.weight": torch.zeros(3, 4), "model.visual.blocks.0.weight": torch.zeros(2)}
            save_file({f"{prefix}{key}": t.clone() for key, t in plain.items()} | more, file)
            ours = files_of(name).of(settings_of(name, folder)).network("text_encoder").state_dict()
            assert ours.keys() == expected.keys()
            assert all(torch.equal(tensor, expected[key]) for key, tensor in ours.items())


@pytest.mark.parametrize("name", ["qwen-image", "flux2"])
def test_exported_standalone_language_model_is_read_by_diffusers(name: str, tmp_path: Path) -> None:
    """Of a vision-language model, under its names in that model."""
    folder = settings_of(name).path
    if name == "flux2":
        folder = tiny_flux2_dev(folder, tmp_path / "model")
    encoder = next((folder / "text_encoder").glob("*.safetensors"))
    kind = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family
    export = export_model(load_model(kind, settings_of(name, folder, over=[encoder])), tmp_path / "export")
    ours, theirs = (
        DiffusionPipeline.from_pretrained(str(one), local_files_only=True).text_encoder.state_dict()
        for one in (export, folder)
    )
    names = [key for key in theirs if "language_model" in key]
    assert names
    assert all(torch.equal(ours[key], theirs[key]) for key in names)


def test_schnell_gets_no_guidance_input(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(settings_of("flux").path, tmp_path / "model"))
    edit(folder / "transformer" / "config.json", guidance_embeds=False)
    settings = settings_of("flux", folder, flux={"guidance": 3.5, "distilled": True})
    assert "model.flux.guidance=null" in refusal(files_of("flux").of(settings).require_trainable, "E1220")
    both = settings_of("flux", folder, flux={"guidance": 3.5})
    message = refusal(files_of("flux").of(both).require_trainable, "E1221")
    assert message.endswith("set model.flux.distilled=true and model.flux.guidance=null")
    files = files_of("flux").of(settings_of("flux", folder, weights="random"))
    assert files.text_shape() == (256, 16)
    family = importlib.import_module("mezzotint.families.flux").Family.load(files, ["denoiser"])
    assert "sample.guidance=1" in refusal(lambda: family.refuse_guidance(3.5), "E1220")
    family.refuse_guidance(1.0)


def test_missing_t5_becomes_zeros_and_is_reported(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(settings_of("sd3").path, tmp_path / "model"))
    for part in ("text_encoder_3", "tokenizer_3"):
        shutil.rmtree(folder / part)
    index = json.loads((folder / "model_index.json").read_text())
    edit(folder / "model_index.json", **{key: [None, None] for key in index if key.endswith("_3")})
    kind: type[FlowFamily] = importlib.import_module("mezzotint.families.sd3").Family
    own = {"sd3": {"t5_tokens": 20}}
    without = kind.of(settings_of("sd3", folder, **own))
    assert any("no T5; zeros" in note for note in without.notes)
    text = without.encode_text(["a red circle"])
    whole = kind.of(settings_of("sd3", **own)).encode_text(["a red circle"])
    assert text.states.shape == whole.states.shape == (1, 97, 32)
    assert torch.equal(text.states[:, :77], whole.states[:, :77])
    assert not text.states[:, 77:].any()
    assert whole.states[:, 77:].any()


@pytest.mark.parametrize(
    ("name", "frames", "side"),
    [("wan", 4, 16), ("ltx", 8, 32), ("flux", 1, 16), ("flux2", 1, 16), ("chroma", 1, 16), ("sd3", 1, 16),
     ("z-image", 1, 16), ("qwen-image", 1, 16), ("krea2", 1, 16)],
)  # fmt: skip
def test_indivisible_sizes_and_lengths_are_refused(name: str, frames: int, side: int) -> None:
    grid = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family.tiny().grid
    assert (grid.frames, grid.side) == (frames, side)
    assert f"multiples of {side}" in grid.refusal(Size(side, side + 8), clips=False)
    assert grid.refusal(Size(side, 2 * side), clips=False) == ""
    if frames > 1:
        message = grid.refusal(Size(side, side, 2 * frames), clips=True)
        assert f"data.clips.frames={frames + 1} or {2 * frames + 1}" in message
        assert grid.refusal(Size(side, side, 2 * frames + 1), clips=True) == ""


@torch.no_grad()
def test_wan_5b_gets_a_timestep_for_each_token(tmp_path: Path) -> None:
    """As in its pipeline with `expand_timesteps`: all tokens of a clip have the same timestep."""
    folder = Path(shutil.copytree(settings_of("wan").path, tmp_path / "model"))
    edit(folder / "model_index.json", expand_timesteps=True)
    kind = importlib.import_module("mezzotint.families.wan").Family
    x = torch.randn(2, 16, 2, 4, 6, generator=torch.Generator().manual_seed(1))
    noised, outputs, shapes = Noised(x, x, x, x, torch.tensor([900.0, 300.0]), torch.tensor([0.9, 0.3])), [], []
    for place in (settings_of("wan").path, folder):
        family = kind.of(settings_of("wan", place))
        watch = lambda module, inputs, named: shapes.append(named["timestep"].shape)  # noqa: E731
        family.parts()["denoiser"].register_forward_pre_hook(watch, with_kwargs=True)
        outputs.append(family.predict(noised, family.condition(family.encode_text(["a", "b"]), None)))
    assert [tuple(shape) for shape in shapes] == [(2,), (2, 2 * 2 * 3)]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["wan", "ltx"])
@torch.no_grad()
def test_image_is_a_clip_of_one_frame(name: str) -> None:
    family = importlib.import_module(f"mezzotint.families.{name}").Family.of(settings_of(name))
    side = 2 * family.grid.pixels
    pixels = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    moments = family.encode_media(pixels)
    assert moments.shape == (2, 2 * family.grid.channels, 2, 2)
    torch.testing.assert_close(moments, family.encode_media(pixels[:, :, None])[:, :, 0])
    assert family.encode_media(pixels[:0]).shape == (0, 2 * family.grid.channels, 2, 2)
    latents = moments[:, : family.grid.channels]
    assert family.decode_media(latents).shape == pixels.shape
    noised = [latents] * 4 + [torch.full((2,), 500.0), torch.full((2,), 0.5)]
    clips = [latents[:, :, None]] * 4 + noised[4:]
    condition = family.condition(family.encode_text(["a", "b"]), None)
    whole = family.predict(Noised(*clips), condition)
    torch.testing.assert_close(family.predict(Noised(*noised), condition), whole[:, :, 0])


def test_captions_of_wan_are_cleaned_as_in_its_pipeline() -> None:
    pipeline = importlib.import_module("diffusers.pipelines.wan.pipeline_wan")
    ours = importlib.import_module("mezzotint.families.wan").clean_caption
    for caption in ("  a  red\n circle ", "bread &amp; butter", "&amp;lt;b&amp;gt;", "schÃ¶n", ""):
        assert ours(caption) == pipeline.prompt_clean(caption)


def test_image_larger_than_the_position_table_is_refused() -> None:
    family = importlib.import_module("mezzotint.families.sd3").Family.tiny()
    x = torch.zeros(1, 4, 50, 8)
    noised = Noised(x, x, x, x, torch.tensor([500.0]), torch.tensor([0.5]))
    message = refusal(lambda: family.predict(noised, family.condition(family.encode_text([""]), None)), "E1222")
    assert "400 pixels" in message
    assert "384" in message


def test_weights_index_with_a_missing_shard_is_refused(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(settings_of("flux").path, tmp_path / "model"))
    weights = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    index = weights.with_name("diffusion_pytorch_model.safetensors.index.json")
    weights.rename(weights.with_name("diffusion_pytorch_model-00001-of-00002.safetensors"))
    names = {
        "a": "diffusion_pytorch_model-00001-of-00002.safetensors",
        "b": "diffusion_pytorch_model-00002-of-00002.safetensors",
    }
    index.write_text(json.dumps({"weight_map": names}))
    message = refusal(lambda: files_of("flux").of(settings_of("flux", folder)).network("denoiser"), "E1404")
    assert "00002-of-00002" in message


@pytest.mark.parametrize("name", STRAIGHT)
def test_truncated_prompts_are_counted(name: str) -> None:
    own = {"t5_tokens": 16} if name in ("sd3", "flux") else {"text_tokens": 48}
    settings = settings_of(name, **{name.replace("-", "_"): own})
    kind = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family
    family = kind.of(settings, kind.spec.text_parts)
    lost = family.lost_tokens(["a", "red " * 300])
    assert lost[0] == 0
    assert lost[1] > 0


def test_truncated_prompt_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--steps=1", "--size=32x32", "model.weights=random", f"--out={tmp_path / 'out'}"]
    assert main(["sample", "tiny-z-image", f"--prompt={'red ' * 600}", *words]) == 0
    heard = capsys.readouterr()
    assert re.search(r"the last \d+ tokens of 'red red .+ do not fit and are ignored", heard.out + heard.err)


def test_recipe_refuses_objectives_unknown_to_flow_matching() -> None:
    def read(text: str) -> str:
        with pytest.raises(RecipeError) as caught:
            read_text(f"schema: 1\n{text}")
        return caught.value.message + "".join(getattr(caught.value, "problems", ()) and map(str, caught.value.problems))

    flux = "model: {family: flux, path: tiny-flux}\n"
    assert "objective.timesteps" in read(f"{flux}objective: {{timesteps: [0, 500]}}")
    assert "objective.zero_terminal_snr" in read(f"{flux}objective: {{zero_terminal_snr: true}}")
    assert "objective.flow" in read("objective: {flow: {density: uniform}}")
    assert "objective.weighting=cosmap" in read("objective: {weighting: cosmap}")
    assert "overflow" in read("model: {family: z-image, path: tiny-z-image}\nrun: {precision: fp16}")
    assert "flow-matching model" in read(f"{flux[:-2]}, prediction: v}}")


def test_families_have_their_own_sampling_defaults() -> None:
    recipe = read_text("schema: 1\nmodel: {family: flux, path: tiny-flux}\nsample: {steps: 7}").recipe
    assert (recipe.sample.solver, recipe.sample.steps, recipe.sample.guidance) == ("euler", 7, (3.5,))
    plain = read_text("schema: 1").recipe
    assert (plain.sample.solver, plain.sample.steps, plain.sample.guidance) == ("ddim", 20, (7.5,))


@pytest.mark.parametrize("name", STRAIGHT)
def test_no_shared_source_names_the_family(name: str) -> None:
    """A family is its two files: no list, table or condition elsewhere knows it."""
    spec, own = family_spec(name), name.replace("-", "_")
    words = [rf'"{re.escape(name)}"', rf"families\.{own}\b", re.escape(spec.networks["denoiser"].rpartition(".")[2])]
    source = ROOT / "src" / "mezzotint"
    mine = {source / "families" / f"{own}.py", source / "settings" / "families" / f"{own}.py"}
    for path in source.rglob("*.py"):
        if path not in mine and "compat" not in path.parts:
            text = path.read_text(encoding="utf-8")
            assert not any(re.search(word, text) for word in words), path
