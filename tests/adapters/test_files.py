"""Adapter files: reading, writing, and loading by other programs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.adapters import files, merging, writing
from mezzotint.adapters.files import Adapter, Layout
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule
from mezzotint.adapters.names import LayerNames
from mezzotint.errors import WeightsError
from mezzotint.weights.files import tensor_files

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "adapters"
OF_SD = {
    "sd_lora_r4_a8.kohya.safetensors": (128, {2.0}),
    "sd_lora_text_r4.kohya.safetensors": (44, {0.5, 2.0}),
    "sd_lora_text_r4.diffusers": (44, {0.5, 2.0}),
    "sd_dora_r4_a8.lycoris.safetensors": (64, {2.0}),
    "sd_loha_r2_a4.lycoris.safetensors": (64, {2.0}),
    "sd_lokr_r2_a4_factor4.lycoris.safetensors": (128, {1.0, 2.0}),
}
"""How many layers each file changes, and the scales."""


def scales(adapter: Adapter) -> set[float]:
    return {module.scale for module in adapter.modules.values()}


def same(one: Adapter, other: Adapter) -> bool:
    """Whether they change the same layers by the same values."""
    return one.modules.keys() == other.modules.keys() and all(
        module.kind == other.modules[layer].kind
        and module.scale == pytest.approx(other.modules[layer].scale, rel=1e-7)
        and module.tensors.keys() == other.modules[layer].tensors.keys()
        and all(torch.equal(tensor, other.modules[layer].tensors[leaf]) for leaf, tensor in module.tensors.items())
        for layer, module in one.modules.items()
    )


@pytest.mark.parametrize("name", OF_SD)
def test_files_of_other_tools_are_read(name: str, bases: dict[str, Any]) -> None:
    adapter = files.read(RECORDS / "files" / name, bases["sd"].names)
    assert (len(adapter.modules), scales(adapter)) == OF_SD[name]
    assert adapter.notes == ()
    assert adapter.layout == ("diffusers" if name.endswith("diffusers") else "kohya")


def test_file_without_alpha_is_read_like_diffusers_reads_it(bases: dict[str, Any]) -> None:
    adapter = files.read(RECORDS / "files" / "sd_lora_r4_a8.diffusers", bases["sd"].names)
    assert scales(adapter) == {1.0}
    assert "128 layers have no alpha" in adapter.notes[0]


@pytest.mark.parametrize("layout", ["diffusers", "kohya"])
@pytest.mark.parametrize(
    ("model", "case"),
    [
        ("sd", "lora_text_r4.kohya"),
        ("sd", "lora_r4_a8.kohya"),
        ("sd", "dora_r4_a8.lycoris"),
        ("sdxl", "lora_text_r4.kohya"),
    ],
)
def test_adapter_round_trips_through_each_layout(
    case: str, model: str, layout: Layout, bases: dict[str, Any], tmp_path: Path
) -> None:
    names: LayerNames = bases[model].names
    adapter = files.read(RECORDS / "files" / f"{model}_{case}.safetensors", names)
    writing.write(adapter, tmp_path / "a.safetensors", names, layout, metadata={"word": "wug"})
    again = files.read(tmp_path / "a.safetensors", names)
    assert same(adapter, again)
    assert again.layout == layout
    assert again.metadata["word"] == "wug"


@pytest.mark.parametrize("name", ["sd_loha_r2_a4", "sd_lokr_r2_a4_factor4", "sdxl_lokr_r2_a4_factor4"])
def test_loha_and_lokr_keep_their_names(name: str, bases: dict[str, Any], tmp_path: Path) -> None:
    names = bases[name.split("_")[0]].names
    adapter = files.read(RECORDS / "files" / f"{name}.lycoris.safetensors", names)
    warned = writing.write(adapter, tmp_path / "a.safetensors", names, "kohya").notes
    assert same(adapter, files.read(tmp_path / "a.safetensors", names))
    assert any("diffusers does not read LoHa and LoKr" in sentence for sentence in warned)
    with pytest.raises(WeightsError, match=r"does not support Lo.* write kohya's layout") as caught:
        writing.write(adapter, tmp_path / "b.safetensors", names, "diffusers")
    assert caught.value.code == "E1435"
    assert not (tmp_path / "b.safetensors").exists()


def test_notes_report_what_other_readers_drop(bases: dict[str, Any], tmp_path: Path) -> None:
    names = bases["sd"].names
    dora = files.read(RECORDS / "files" / "sd_dora_r4_a8.lycoris.safetensors", names)
    plain = files.read(RECORDS / "files" / "sd_lora_r4_a8.kohya.safetensors", names)

    def notes(adapter: Adapter, layout: Layout) -> str:
        return "\n".join(writing.write(adapter, tmp_path / "a.safetensors", names, layout).notes)

    assert "diffusers drops the magnitudes of a DoRA" in notes(dora, "kohya")
    assert "diffusers uses the most common alpha of kohya's layout" in notes(mixed(names), "kohya")
    assert notes(plain, "kohya") == "", "all readers support it"
    for adapter in (dora, plain, mixed(names)):
        assert notes(adapter, "diffusers") == (
            "ComfyUI reads only part of this layout, A1111 none of it; `mezzotint check-adapter` lists the layers"
        )


def mixed(names: LayerNames) -> Adapter:
    """An adapter whose ranks and alphas differ between layers, in both parts."""
    draw = torch.Generator().manual_seed(4)
    layers = [layer for layer in names.weights if layer.path.endswith(("to_q", "to_out.0", "q_proj", "mlp.fc1"))][:40]
    layers += [layer for layer in names.weights if layer.path.endswith(("q_proj", "mlp.fc1"))]
    modules = {}
    for number, layer in enumerate(layers):
        out, into = names.weights[layer][:2]
        rank = (4, 4, 2, 7)[number % 4]
        tensors = {
            "lora_down.weight": 0.2 * torch.randn(rank, into, generator=draw),
            "lora_up.weight": 0.2 * torch.randn(out, rank, generator=draw),
        }
        modules[layer] = AdapterModule("lora", tensors, alpha=(8.0, 1.0, None)[number % 3])
    return Adapter(modules)


def latents(pipeline: Any, prompt_ids: Tensor) -> Tensor:
    """The prediction of the denoiser with the states of the text encoder."""
    draw = torch.Generator().manual_seed(0)
    sample = torch.randn(1, pipeline.unet.config.in_channels, 8, 8, generator=draw)
    with torch.no_grad():
        states = pipeline.text_encoder(prompt_ids)[0]
        return pipeline.unet(sample, 500, encoder_hidden_states=states).sample  # type: ignore[no-any-return]


@pytest.fixture
def pipeline(bases: dict[str, Any]) -> Any:
    pytest.importorskip("peft")
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline.from_pretrained(
        bases["sd"].folder, safety_checker=None, requires_safety_checker=False, feature_extractor=None
    )


IDS = torch.tensor([[3, 7, 1, 2, 9, 4]])


# in kohya's layout diffusers uses the most common alpha for all layers, and drops the magnitudes of a DoRA
@pytest.mark.parametrize(("kind", "layout"), [("mixed", "diffusers"), ("dora", "diffusers"), ("rslora", "kohya")])
def test_diffusers_predicts_the_same_as_the_merged_model(
    kind: str, layout: Layout, bases: dict[str, Any], pipeline: Any, tmp_path: Path
) -> None:
    base = bases["sd"]
    record = "sd_dora_r4_a8.lycoris" if kind == "dora" else "sd_lora_text_r4.kohya"
    adapter = (
        mixed(base.names) if kind == "mixed" else files.read(RECORDS / "files" / f"{record}.safetensors", base.names)
    )
    if kind == "rslora":
        adapter = Adapter({layer: AdapterModule("lora", m.tensors, 3.0, True) for layer, m in adapter.modules.items()})
    writing.write(adapter, tmp_path / "a.safetensors", base.names, layout)
    before = latents(pipeline, IDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.load_lora_weights(tmp_path, weight_name="a.safetensors", adapter_name="a")
    loaded = latents(pipeline, IDS)
    pipeline.unload_lora_weights()
    for component, network in (("unet", pipeline.unet), ("text_encoder", pipeline.text_encoder)):
        merged = merging.merge_adapters(component, base.weights[component], [(adapter, 1.0)])
        own = network.state_dict()
        network.load_state_dict({n.removeprefix("" if n in own else "text_model."): t for n, t in merged.items()})
    assert float((loaded - before).abs().max()) > 1e-3
    assert float((loaded - latents(pipeline, IDS)).abs().max()) < 1e-5


# --- invalid files ----------------------------------------------------------------------------------------


def spoilt(tmp_path: Path, change: Any, name: str = "sd_lora_text_r4.kohya.safetensors") -> Path:
    """A copy of a record with its tensors changed."""
    tensors = load_file(RECORDS / "files" / name)
    change(tensors)
    save_file(tensors, tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize(
    ("file", "model", "sentence"),
    [
        ("sdxl_lora_text_r4.kohya.safetensors", "sd", "looks like an adapter for SDXL"),
        ("sdxl_lora_text_r4.diffusers", "sd", "looks like an adapter for SDXL"),
        ("sd_lora_text_r4.kohya.safetensors", "sdxl", "looks like an adapter for Stable Diffusion 1 or 2"),
    ],
)
def test_adapter_for_another_model_is_refused(file: str, model: str, sentence: str, bases: dict[str, Any]) -> None:
    with pytest.raises(WeightsError, match=sentence) as caught:
        files.read(RECORDS / "files" / file, bases[model].names)
    assert caught.value.code == "E1431"


def test_layer_with_wrong_shape_is_reported(bases: dict[str, Any], tmp_path: Path) -> None:
    def widen(tensors: dict[str, Tensor]) -> None:
        name = next(name for name in tensors if name.endswith("attn2_to_v.lora_down.weight"))
        tensors[name] = torch.zeros(4, 1024)

    with pytest.raises(
        WeightsError, match=r"unet\..*attn2\.to_v does not fit: lora_down\.weight \(4, 1024\)"
    ) as caught:
        files.read(spoilt(tmp_path, widen), bases["sd"].names)
    assert caught.value.code == "E1432"


def test_incomplete_layer_is_reported(bases: dict[str, Any], tmp_path: Path) -> None:
    path = spoilt(tmp_path, lambda tensors: tensors.pop(next(n for n in tensors if n.endswith("lora_up.weight"))))
    with pytest.raises(WeightsError, match=r"lacks lora_up\.weight; the file is incomplete") as caught:
        files.read(path, bases["sd"].names)
    assert caught.value.code == "E1433"


@pytest.mark.parametrize("leaf", ["lora_down.weight", "alpha"])
def test_rank_0_and_non_scalar_alpha_are_refused(leaf: str, bases: dict[str, Any], tmp_path: Path) -> None:
    def empty(tensors: dict[str, Tensor]) -> None:
        name = next(name for name in tensors if name.endswith(leaf))
        tensors[name] = torch.ones(2) if leaf == "alpha" else tensors[name][:0].clone()

    with pytest.raises(WeightsError, match="rank 0") as caught:
        files.read(spoilt(tmp_path, empty), bases["sd"].names)
    assert caught.value.code == "E1433"


def test_layers_without_alpha_are_counted(bases: dict[str, Any], tmp_path: Path) -> None:
    path = spoilt(tmp_path, lambda tensors: [tensors.pop(n) for n in list(tensors) if n.endswith("to_v.alpha")])
    adapter = files.read(path, bases["sd"].names)
    assert adapter.notes == ("32 of 44 layers have no alpha; using alpha = rank, as every program does",)


def test_values_that_are_not_finite_are_refused(bases: dict[str, Any], tmp_path: Path) -> None:
    path = spoilt(tmp_path, lambda tensors: next(iter(tensors.values())).fill_(float("nan")))
    with pytest.raises(WeightsError) as caught:
        files.read(path, bases["sd"].names)
    assert caught.value.code == "E1403"


def test_model_file_is_not_an_adapter(bases: dict[str, Any]) -> None:
    model = next((bases["sd"].folder / "unet").glob("*.safetensors"))
    with pytest.raises(WeightsError, match=r"contains no adapter.*Set `model.path` to give a model") as caught:
        files.read(model, bases["sd"].names)
    assert caught.value.code == "E1430"
    assert not files.is_adapter(tensor_files.read_header(model))
    assert files.is_adapter(load_file(RECORDS / "files" / "sd_loha_r2_a4.lycoris.safetensors"))


@pytest.mark.parametrize(
    "settings",
    ["{", "[]", '{"unet.lora_alpha": NaN}', '{"unet.lora_alpha": "much"}', '{"unet.alpha_pattern": {"a": []}}'],
)
def test_unreadable_settings_are_an_error(settings: str, bases: dict[str, Any], tmp_path: Path) -> None:
    tensors = load_file(RECORDS / "files" / "sd_lora_r4_a8.diffusers" / files.DIFFUSERS_NAME)
    save_file(tensors, tmp_path / "a.safetensors", {files.SETTINGS_KEY: settings})
    with pytest.raises(WeightsError, match="cannot be read") as caught:
        files.read(tmp_path / "a.safetensors", bases["sd"].names)
    assert caught.value.code == "E1434"


def test_settings_contain_rank_and_alpha_of_each_layer(bases: dict[str, Any], tmp_path: Path) -> None:
    adapter = mixed(bases["sd"].names)
    writing.write(adapter, tmp_path / "a.safetensors", bases["sd"].names, "diffusers")
    settings = json.loads(tensor_files.read_metadata(tmp_path / "a.safetensors")[files.SETTINGS_KEY])
    assert settings["unet.r"] == 4
    assert set(settings["unet.rank_pattern"].values()) == {2, 7}
    assert settings["unet.lora_alpha"] == 4, "the strength is in the tensors"
    assert set(settings["unet.alpha_pattern"].values()) == {2, 7}
    again = files.read(tmp_path / "a.safetensors", bases["sd"].names)
    assert again.modules.keys() == adapter.modules.keys()
    for layer, module in adapter.modules.items():
        assert again.modules[layer].plain_alpha == pytest.approx(module.rank if module.alpha is None else module.alpha)
        shape = bases["sd"].names.weights[layer]
        torch.testing.assert_close(again.modules[layer].difference(shape), module.difference(shape))


def test_oldest_diffusers_layout_is_read(bases: dict[str, Any], tmp_path: Path) -> None:
    layer = next(each for each in bases["sd"].names.weights if each.path.endswith("attn1.to_out.0"))
    start = f"{layer.component}.{layer.path.removesuffix('.to_out.0')}.processor.to_out_lora"
    width = bases["sd"].names.weights[layer][0]
    tensors = {f"{start}.down.weight": torch.ones(2, width), f"{start}.up.weight": torch.ones(width, 2)}
    save_file(tensors, tmp_path / "a.safetensors")
    assert list(files.read(tmp_path / "a.safetensors", bases["sd"].names).modules) == [layer]


def test_column_magnitudes_are_read_but_not_written_for_diffusers(bases: dict[str, Any], tmp_path: Path) -> None:
    def turn(tensors: dict[str, Tensor]) -> None:
        for name in [n for n in tensors if n.endswith(MAGNITUDE)]:
            down = tensors[name.replace(MAGNITUDE, "lora_down.weight")]
            tensors[name] = torch.ones(1, down.shape[1])

    path = spoilt(tmp_path, turn, "sd_dora_r4_a8.lycoris.safetensors")
    adapter = files.read(path, bases["sd"].names)
    assert "a magnitude for each column" in adapter.notes[0]
    with pytest.raises(WeightsError, match="magnitudes of columns"):
        writing.write(adapter, tmp_path / "b.safetensors", bases["sd"].names, "diffusers")


def test_column_magnitudes_are_read_for_any_kind(tmp_path: Path) -> None:
    """Older LyCORIS wrote (1, in, 1, 1) for convolutions of every kind."""
    names = LayerNames({"unet": {"conv.weight": (6, 4, 3, 3)}})
    draw = torch.Generator().manual_seed(0)
    shapes = {"hada_w1_a": (6, 2), "hada_w1_b": (2, 36), "hada_w2_a": (6, 2), "hada_w2_b": (2, 36)}
    tensors = {f"lora_unet_conv.{leaf}": torch.randn(shape, generator=draw) for leaf, shape in shapes.items()}
    lengths = torch.rand(1, 4, 1, 1, generator=draw) + 1
    save_file(tensors | {"lora_unet_conv.dora_scale": lengths}, tmp_path / "a.safetensors")
    adapter = files.read(tmp_path / "a.safetensors", names)
    assert any("a magnitude for each column" in note for note in adapter.notes)
    (module,) = adapter.modules.values()
    adapted = module.merge_into(torch.randn(6, 4, 3, 3, generator=draw))
    torch.testing.assert_close(torch.linalg.vector_norm(adapted, dim=(0, 2, 3)), lengths.flatten())
