"""Adapters of every family, kind and layout: files are read back, and other programs accept their names."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint import registry
from mezzotint.adapters import files, readers, targets, trainers, writing
from mezzotint.adapters.files import Adapter, Layout
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule
from mezzotint.adapters.names import LayerName, LayerNames
from mezzotint.adapters.trainers import find_spelling
from mezzotint.errors import WeightsError
from mezzotint.settings.families.base import family_spec
from mezzotint.tasks.reading.commands import COMMANDS
from mezzotint.weights.folder import components
from mezzotint.weights.single_file import original
from support.flow_sizes import FULL

FLOW = ("flux", "chroma", "flux2", "sd3", "z-image", "qwen-image", "krea2", "wan", "ltx")
FAMILIES = ("sd", "sdxl", *FLOW)
KINDS = ("lora", "dora", "loha", "lokr")
PIPELINES = {
    "sd": "StableDiffusionPipeline", "sdxl": "StableDiffusionXLPipeline", "sd3": "StableDiffusion3Pipeline",
    "flux": "FluxPipeline", "chroma": "ChromaPipeline", "flux2": "Flux2KleinPipeline", "z-image": "ZImagePipeline",
    "qwen-image": "QwenImagePipeline", "krea2": "Krea2Pipeline", "wan": "WanPipeline", "ltx": "LTXPipeline",
}  # fmt: skip
LAYOUTS: tuple[Layout, ...] = ("diffusers", "kohya", "comfy")
COMBINATIONS = [(f, k) for f in FAMILIES for k in KINDS if k == "lora" or f in ("sd", "flux", "z-image", "wan")]
"""Each family with LoRA, and each kind with a U-Net, a fused and swapped, a fused, and a plain transformer."""


@functools.cache
def names_of(family: str) -> LayerNames:
    return LayerNames.of(registry.find("families", family).Family.files.tiny())


def adapter_for(family: str, kind: str, preset: str = "attention+mlp", *, alpha: float | None = 2.0) -> Adapter:
    """An adapter of random values and rank 4 for all trainable parts."""
    names, draw = names_of(family), torch.Generator().manual_seed(7)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw)

    modules = {}
    own = family_spec(family).layers
    for component in names.shapes:
        for layer in targets.select_layers(names, component, cast(Any, preset), own) if component != "vae" else ():
            out, width, *window = names.weights[layer]
            match kind:
                case "loha":
                    columns = width * int(torch.Size(window).numel())
                    tensors = {f"hada_w{n}_a": random(out, 2) for n in "12"}
                    tensors |= {f"hada_w{n}_b": random(2, columns) for n in "12"}
                case "lokr":
                    tensors = {"lokr_w1": random(2, 2), "lokr_w2": random(out // 2, width // 2, *window)}
                    if not window:
                        tensors = {"lokr_w1": random(2, 2), "lokr_w2_a": random(out // 2, 2),
                                   "lokr_w2_b": random(2, width // 2)}  # fmt: skip
                case _:
                    tensors = {"lora_down.weight": random(4, width, *window)}
                    tensors |= {"lora_up.weight": random(out, 4, *(1 for _ in window))}
            if kind == "dora":
                tensors[MAGNITUDE] = random(out, *(1 for _ in (width, *window))).abs() + 0.5
            modules[layer] = AdapterModule(cast(Any, kind if kind in ("loha", "lokr") else "lora"), tensors, alpha)
    return Adapter(modules)


def assert_same_change(one: Adapter, other: Adapter, names: LayerNames) -> None:
    assert one.modules.keys() == other.modules.keys()
    for layer, module in one.modules.items():
        shape = names.weights[layer]
        torch.testing.assert_close(other.modules[layer].difference(shape), module.difference(shape))
        assert module.is_dora == other.modules[layer].is_dora
        if module.is_dora:
            assert torch.equal(module.tensors[MAGNITUDE], other.modules[layer].tensors[MAGNITUDE])


def layouts_of(family: str, kind: str) -> tuple[Layout, ...]:
    """The layouts that support a kind."""
    fused = family in ("flux", "chroma", "flux2", "sd3", "z-image")
    kohya: tuple[Layout, ...] = () if fused and kind in ("loha", "lokr") else ("kohya",)
    own: tuple[Layout, ...] = ("diffusers",) if kind in ("lora", "dora") else ()
    return (*own, *kohya, "comfy")


@pytest.mark.parametrize(("family", "kind"), COMBINATIONS)
def test_adapter_in_any_layout_changes_the_same_weights(family: str, kind: str, tmp_path: Path) -> None:
    names = names_of(family)
    adapter = adapter_for(family, kind)
    for layout in LAYOUTS:
        file = tmp_path / f"{layout}.safetensors"
        if layout not in layouts_of(family, kind):
            with pytest.raises(WeightsError) as caught:
                writing.write(adapter, file, names, layout)
            assert caught.value.code == "E1435"
            assert not file.exists()
            continue
        writing.write(adapter, file, names, layout)
        back = files.read(file, names)
        assert back.layout == layout
        assert back.notes == ()
        assert_same_change(adapter, back, names)
        assert {m.scale for m in back.modules.values()} == {m.scale for m in adapter.modules.values()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("trainer", trainers.load())
def test_adapter_in_the_names_of_a_trainer_changes_the_same_weights(trainer: str, family: str, tmp_path: Path) -> None:
    names, adapter, file = names_of(family), adapter_for(family, "lora"), tmp_path / "a.safetensors"
    spelling = find_spelling(trainer, family)
    writing.write(adapter, file, names, spelling)
    assert_same_change(adapter, files.read(file, names, tmp_path), names)
    tensors = load_file(file)
    stored = names.denoisers[0] if family in ("sd", "sdxl") else "transformer"
    starts = {"kohya": "lora_unet_", "comfy": "diffusion_model.", "diffusers": f"{stored}."}
    own = spelling.prefix or starts[spelling.layout]
    assert all(name.startswith((own, "lora_te", "text_encoder")) for name in tensors)
    assert any(name.endswith(".alpha") for name in tensors) == (spelling.layout == "kohya")


@pytest.mark.parametrize(
    ("trainer", "family", "name"),
    [
        ("ai-toolkit", "sdxl", "lora_unet_middle_block_1_transformer_blocks_0_attn1_to_q.lora_down.weight"),
        ("ai-toolkit", "flux", "transformer.transformer_blocks.0.attn.to_q.lora_A.weight"),
        ("ai-toolkit", "flux2", "diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight"),
        ("ai-toolkit", "chroma", "diffusion_model.single_blocks.0.linear1.lora_A.weight"),
        ("ai-toolkit", "wan", "diffusion_model.blocks.0.self_attn.q.lora_A.weight"),
        ("ai-toolkit", "z-image", "diffusion_model.layers.0.attention.to_q.lora_A.weight"),
        ("ai-toolkit", "qwen-image", "diffusion_model.transformer_blocks.0.attn.to_out.0.lora_A.weight"),
        ("ai-toolkit", "krea2", "diffusion_model.blocks.0.attn.wo.lora_A.weight"),
        ("musubi", "wan", "lora_unet_blocks_0_self_attn_q.lora_down.weight"),
        ("onetrainer", "flux", "lora_transformer_single_transformer_blocks_0_attn_to_k.lora_down.weight"),
        ("simpletuner", "z-image", "transformer.layers.0.attention.to_q.lora_A.weight"),
    ],
)
def test_names_are_those_of_the_trainer(trainer: str, family: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    writing.write(adapter_for(family, "lora"), file, names_of(family), find_spelling(trainer, family))
    assert name in load_file(file)


def test_command_line_offers_every_trainer() -> None:
    [convert] = (command for command in COMMANDS if command.name == "convert")
    [option] = (one for one in convert.options if one.name == "--layout")
    assert {*option.choices} == {*LAYOUTS, *trainers.load()}


@pytest.mark.parametrize(("family", "kind"), COMBINATIONS)
def test_each_reader_accepts_its_export_at_full_strength(family: str, kind: str, tmp_path: Path) -> None:
    """The files of `run.export.adapter=auto`: the first is for diffusers, the second for ComfyUI."""
    names = names_of(family)
    adapter = adapter_for(family, kind, "all-linear")
    generating: Layout = "kohya" if family in ("sd", "sdxl") else "comfy"
    for label, layout in (("diffusers", "diffusers"), ("ComfyUI", generating)):
        if layout not in layouts_of(family, kind):
            continue
        file = tmp_path / f"{layout}.safetensors"
        writing.write(adapter, file, names, cast(Layout, layout))
        reader = next(reader for reader in readers.load() if reader.label == label)
        metadata = files.tensor_files.read_metadata(file)
        verdict = readers.judge(reader, load_file(file), metadata, names, family)
        assert verdict.is_right, verdict.refused[:2]
        assert verdict.layers > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_diffusers_layout_stores_the_strength_in_its_tensors(family: str, tmp_path: Path) -> None:
    """Programs that ignore the header and find no alpha apply alpha = rank."""
    names = names_of(family)
    adapter = adapter_for(family, "lora", alpha=1.0)
    writing.write(adapter, tmp_path / "a.safetensors", names, "diffusers")
    save_file(load_file(tmp_path / "a.safetensors"), tmp_path / "bare.safetensors")
    assert_same_change(adapter, files.read(tmp_path / "bare.safetensors", names), names)
    assert {m.alpha for m in files.read(tmp_path / "a.safetensors", names).modules.values()} == {1.0}, (
        "for further training"
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_diffusers_pipelines_read_the_diffusers_layout(family: str, tmp_path: Path) -> None:
    """The names and values that the pipeline of each family reads from a file."""
    import diffusers

    names = names_of(family)
    adapter = adapter_for(family, "lora", "all-linear", alpha=1.0)
    writing.write(adapter, tmp_path / "a.safetensors", names, "diffusers")
    more = {"unet_config": None} if family in ("sd", "sdxl") else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded: Any = getattr(diffusers, PIPELINES[family]).lora_state_dict(str(tmp_path / "a.safetensors"), **more)
    state = loaded[0] if isinstance(loaded, tuple) else loaded
    for layer, module in adapter.modules.items():
        down = next(state[key] for key in keys(layer, "lora_A", "lora.down", "lora_linear_layer.down") if key in state)
        up = next(state[key] for key in keys(layer, "lora_B", "lora.up", "lora_linear_layer.up") if key in state)
        change = (up.flatten(1) @ down.flatten(1)).reshape(names.weights[layer])
        torch.testing.assert_close(change, module.difference(names.weights[layer]))


def keys(layer: LayerName, *leaves: str) -> list[str]:
    paths = {layer.path, f"text_model.{layer.path}"}
    return [f"{layer.component}.{path}.{leaf}.weight" for path in paths for leaf in leaves]


# --- files of other programs ----------------------------------------------------------------------------------------

PREFIXES = {
    "transformer.": ("diffusers", False), "diffusion_model.": ("diffusers", False), "": ("diffusers", False),
    "base_model.model.": ("diffusers", False), "lora_unet_": ("diffusers", True),
    "lora_transformer_": ("diffusers", True), "lycoris_": ("diffusers", True),
}  # fmt: skip


LEAVES = [("lora_A.weight", "lora_B.weight"), ("lora_down.weight", "lora_up.weight")]
OF_OTHERS = [("flux", prefix, leaves) for prefix in PREFIXES for leaves in LEAVES]
OF_OTHERS += [
    (family, *way) for family in FLOW[1:] for way in (("diffusion_model.", LEAVES[0]), ("lora_unet_", LEAVES[1]))
]


@pytest.mark.parametrize(("family", "prefix", "leaves"), OF_OTHERS)
def test_all_prefixes_of_diffusers_and_original_names_are_read(
    family: str, prefix: str, leaves: tuple[str, str], tmp_path: Path
) -> None:
    names = names_of(family)
    layers = [layer for layer in names.weights if layer.component == "transformer"]
    wholes = [layer for layer in layers if names.original_layers[layer].parts == (layer,)]
    draw = torch.Generator().manual_seed(1)
    for paths in (
        {layer: layer.path for layer in layers},
        {layer: names.original_layers[layer].path for layer in wholes if not names.original_layers[layer].is_swapped},
    ):
        tensors = {}
        for layer, path in paths.items():
            name = prefix + (path.replace(".", "_") if PREFIXES[prefix][1] else path)
            out, width, *window = names.weights[layer]
            tensors[f"{name}.{leaves[0]}"] = torch.randn(2, width, *window, generator=draw)
            tensors[f"{name}.{leaves[1]}"] = torch.randn(out, 2, *(1 for _ in window), generator=draw)
            tensors[f"{name}.alpha"] = torch.tensor(1.0)
        save_file(tensors, tmp_path / "a.safetensors")
        assert files.read(tmp_path / "a.safetensors", names).modules.keys() == paths.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_identifies_one_layer(family: str) -> None:
    names = names_of(family)
    for layer, original_layer in names.original_layers.items():
        lookup = names.lookup(layer.component)
        assert lookup[f"{layer.component}.{layer.path}"] == layer
        for name in (f"diffusion_model.{original_layer.path}", f"lora_unet_{original_layer.path.replace('.', '_')}"):
            target = lookup[name]
            parts = (target,) if isinstance(target, LayerName) else target.parts
            assert parts == original_layer.parts


@pytest.mark.parametrize("family", ["flux", "flux2", "sd3", "z-image"])
def test_fused_projection_is_split_into_its_parts(family: str, tmp_path: Path) -> None:
    names = names_of(family)
    fused = {o for o in names.original_layers.values() if len(o.parts) > 1}
    assert fused
    draw, tensors = torch.Generator().manual_seed(3), {}
    for each in fused:
        out, width = sum(names.weights[part][0] for part in each.parts), names.weights[each.parts[0]][1]
        start = f"lora_unet_{each.path.replace('.', '_')}"
        tensors[f"{start}.lora_down.weight"] = torch.randn(3, width, generator=draw)
        tensors[f"{start}.lora_up.weight"] = torch.randn(out, 3, generator=draw)
        tensors[f"{start}.alpha"] = torch.tensor(6.0)
    save_file(tensors, tmp_path / "a.safetensors")
    adapter = files.read(tmp_path / "a.safetensors", names)
    for each in fused:
        start = f"lora_unet_{each.path.replace('.', '_')}"
        whole = 2 * tensors[f"{start}.lora_up.weight"] @ tensors[f"{start}.lora_down.weight"]
        parts = [adapter.modules[part].difference(names.weights[part]) for part in each.parts]
        torch.testing.assert_close(torch.cat(parts), whole)
    writing.write(adapter, tmp_path / "b.safetensors", names, "kohya")
    again = load_file(tmp_path / "b.safetensors")
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


def test_names_match_other_trainers() -> None:
    """Names of sd-scripts for FLUX and SD3, of musubi-tuner for Wan; ComfyUI uses original names with a prefix."""
    flux, wan = adapter_for("flux", "lora", "attention"), adapter_for("wan", "lora")
    kohya = writing.kohya_tensors(flux, names_of("flux"))
    assert "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight" in kohya
    assert "lora_unet_double_blocks_0_txt_attn_proj.lora_up.weight" in kohya
    assert kohya["lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight"].shape[0] == 12, "three ranks of 4"
    assert any(name.startswith("lora_te1_text_model_encoder_layers_0_self_attn_q_proj.") for name in kohya)
    comfy = writing.comfy_tensors(wan, names_of("wan"))
    assert {"diffusion_model.blocks.0.self_attn.q.lora_A.weight", "diffusion_model.blocks.0.ffn.0.lora_B.weight",
            "diffusion_model.blocks.0.cross_attn.o.alpha"} <= comfy.keys()  # fmt: skip
    split = writing.comfy_tensors(flux, names_of("flux"))
    assert "transformer.transformer_blocks.0.attn.to_q.lora_A.weight" in split, "ComfyUI keeps them separate"
    joined = writing.comfy_tensors(adapter_for("z-image", "lora"), names_of("z-image"))
    assert joined["diffusion_model.layers.0.attention.qkv.lora_A.weight"].shape[0] == 12
    assert not any(".to_q." in name for name in joined), "ComfyUI does not know these names"


@pytest.mark.parametrize("family", ["qwen-image", "z-image", "flux", "wan"])
def test_transformer_names_match_diffusers_scripts(family: str, tmp_path: Path) -> None:
    names = names_of(family)
    writing.write(adapter_for(family, "lora", "attention"), tmp_path / "a.safetensors", names, "diffusers")
    of_denoiser = [name for name in load_file(tmp_path / "a.safetensors") if name.startswith("transformer.")]
    assert of_denoiser
    assert all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in of_denoiser)


@pytest.mark.parametrize(
    "label", ["flux-dev", "chroma", "sd3.5-medium", "klein-4b", "z-image", "qwen-image", "krea2", "wan-1.3b", "ltx-2b"]
)
def test_original_names_and_rows_match_diffusers_conversion(label: str) -> None:
    """At full size, which diffusers' conversion of FLUX requires."""
    family, config, _ = FULL[label]
    model: Any = registry.find("families", family).Family.files
    shapes = components.shapes(model.spec.networks["denoiser"], config, where=Path(label))
    plan = original.plan(model.spec.networks["denoiser"], config, shapes, model.renames, "")
    swapped = model.swapped_layers(shapes)
    names = {"transformer": {name: original.rename_tensor(name, model.renames) for name in shapes}}
    layers = LayerNames({"transformer": shapes}, names, frozenset(swapped))
    for layer, each in layers.original_layers.items():
        pieces = plan.sources[f"{each.path}.weight"]
        expected = tuple(dict.fromkeys(LayerName("transformer", piece[0].removesuffix(".weight")) for piece in pieces))
        assert each.parts == expected
        assert each.is_swapped == (len(pieces) > len(expected)), layer


# --- two denoisers ----------------------------------------------------------------------------------------------------


@functools.cache
def two_denoisers() -> LayerNames:
    one = names_of("wan")
    shapes = {"transformer": one.shapes["transformer"], "transformer_2": one.shapes["transformer"]}
    return LayerNames(shapes, dict.fromkeys(shapes, one.originals["transformer"]))


def of_two() -> Adapter:
    high = adapter_for("wan", "lora").modules
    low = {LayerName("transformer_2", layer.path): AdapterModule("lora", {n: -t for n, t in m.tensors.items()}, m.alpha)
           for layer, m in high.items()}  # fmt: skip
    return Adapter({**high, **low})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_adapter_of_two_denoisers_round_trips_as_two_files(layout: Layout, tmp_path: Path) -> None:
    names, adapter = two_denoisers(), of_two()
    written = writing.write(adapter, tmp_path / "fox.safetensors", names, layout)
    assert [file.name for file in written.files] == ["fox_high_noise.safetensors", "fox_low_noise.safetensors"]
    assert len(load_file(written.files[0])) == len(load_file(written.files[1]))
    assert_same_change(adapter, files.read(tmp_path, names), names)
    for file, component in zip(written.files, ("transformer", "transformer_2"), strict=True):
        assert files.read(file, names).components == (component,)
    renamed = written.files[1].rename(tmp_path / "renamed.safetensors")
    assert files.read(renamed, names).components == ("transformer_2",), "by its header"


def test_denoiser_of_a_foreign_file_is_inferred_from_its_name(tmp_path: Path) -> None:
    names = two_denoisers()
    tensors = writing.comfy_tensors(adapter_for("wan", "lora"), names_of("wan"))
    for name, component in (
        ("fox_LOW", "transformer_2"),
        ("high_noise_fox", "transformer"),
        ("lowlands", "transformer"),
    ):
        save_file(tensors, tmp_path / f"{name}.safetensors")
        adapter = files.read(tmp_path / f"{name}.safetensors", names)
        assert adapter.components == (component,)
        assert bool(adapter.notes) == (name == "lowlands"), "a guess is noted"
    given = files.read(tmp_path / "lowlands.safetensors", names, denoiser="transformer_2")
    assert given.components == ("transformer_2",)
    second = [layer for layer in names.weights if layer.component == "transformer_2" and layer.path.endswith("to_q")]
    plain = {f"{layer}.lora_A.weight": torch.ones(2, names.weights[layer][1]) for layer in second}
    plain |= {n.replace("lora_A", "lora_B"): torch.ones(16, 2) for n in plain}
    save_file(plain, tmp_path / "plain.safetensors")
    assert files.read(tmp_path / "plain.safetensors", names).components == ("transformer_2",)


# --- the table of readers ---------------------------------------------------------------------------------------------


def verdict_of(label: str, tensors: dict[str, Tensor], family: str) -> readers.Verdict:
    reader = next(reader for reader in readers.load() if reader.label == label)
    return readers.judge(reader, tensors, {}, names_of(family), family)


def test_names_unknown_to_comfyui_are_refused() -> None:
    """Diffusers' names of Wan, and of FLUX with kohya's prefix."""
    adapter = adapter_for("flux", "lora", "attention")
    flux = {f"lora_unet_{layer.path.replace('.', '_')}.{leaf}": tensor for layer, module in adapter.modules.items()
            if layer.component == "transformer" for leaf, tensor in module.tensors.items()}  # fmt: skip
    assert verdict_of("ComfyUI", flux, "flux").accepted == 0
    wan = {f"{layer}.{leaf}": tensor for layer, module in adapter_for("wan", "lora").modules.items()
           for leaf, tensor in module.tensors.items()}  # fmt: skip
    assert verdict_of("ComfyUI", wan, "wan").accepted == 0


def test_strength_only_in_the_header_is_reported() -> None:
    layer = next(iter(adapter_for("flux", "lora", "attention").modules))
    tensors = {f"{layer}.lora_A.weight": torch.ones(4, 16), f"{layer}.lora_B.weight": torch.ones(16, 4)}
    settings = '{"transformer.r": 4, "transformer.lora_alpha": 2}'
    names = names_of("flux")
    for label, expected in (("ComfyUI", (2.0,)), ("diffusers", (1.0,))):
        reader = next(reader for reader in readers.load() if reader.label == label)
        verdict = readers.judge(reader, tensors, {files.SETTINGS_KEY: settings}, names, "flux")
        assert verdict.strengths == expected


def test_comfyui_refuses_unet_attention_under_diffusers_names() -> None:
    adapter = adapter_for("sd", "lora")
    tensors = writing.diffusers_tensors(adapter, Path("x"), names_of("sd"), "unet")
    verdict = verdict_of("ComfyUI", tensors, "sd")
    attention = sum(
        layer.component == "unet" and layer.path.endswith((".to_q", ".to_k", ".to_v", ".to_out.0"))
        for layer in adapter.modules
    )
    assert verdict.layers - verdict.accepted == attention > 0
