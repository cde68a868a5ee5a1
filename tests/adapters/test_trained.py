"""The adapter that a run trains: its layers and ranks, its parameter names, and its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mezzotint.adapters import writing
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule
from mezzotint.adapters.names import LayerName
from mezzotint.adapters.trained import START, TrainedAdapter
from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.model_files import ModelFiles
from support.adapter_records import FILES, SD

BOTH = ("denoiser", "text_encoder")


@pytest.fixture(autouse=True)
def _with_peft() -> None:
    pytest.importorskip("peft")


@pytest.fixture(scope="module")
def model_files() -> ModelFiles:
    return Family.files.of(ModelSettings(path=shipped_folder("tiny-sd"), weights="random"))


def adapter(model_files: ModelFiles, train: tuple[str, ...] = ("denoiser",), **settings: Any) -> TrainedAdapter:
    words = {"kind": "lora", "rank": 2} | settings
    return TrainedAdapter.of(ModelSettings(path=shipped_folder("tiny-sd"), train=train, adapter=words), model_files)  # type: ignore[arg-type]


def parts_of(model_files: ModelFiles, *parts: str) -> dict[str, nn.Module]:
    return {part: module.requires_grad_(False) for part, module in Family.load(model_files, parts).parts().items()}


def test_target_with_a_part_prefix_applies_only_to_that_part(model_files: ModelFiles) -> None:
    trained = adapter(model_files, BOTH, targets=["denoiser/*.to_q", "text_encoder/*.q_proj"])
    assert {path.rpartition(".")[2] for path in trained.shapes["denoiser"].layers} == {"to_q"}
    assert {path.rpartition(".")[2] for path in trained.shapes["text_encoder"].layers} == {"q_proj"}
    wider = adapter(model_files, targets=["*.to_q", "*.conv1"])
    assert {path.rpartition(".")[2] for path in wider.shapes["denoiser"].layers} == {"to_q", "conv1"}


@pytest.mark.parametrize(
    ("targets", "sentence"), [(["*nowhere*"], "nowhere"), (["denoiser/attention"], "matches no layer of text_encoder")]
)
def test_targets_without_match_are_reported(model_files: ModelFiles, targets: list[str], sentence: str) -> None:
    with pytest.raises(WeightsError, match=sentence) as caught:
        adapter(model_files, BOTH, targets=targets)
    assert caught.value.code == "E1437"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"targets": ["text_encoder/attention"]},
            "add text_encoder to model.train, or remove text_encoder/attention",
        ),
        ({"targets": ["denoser/attention"]}, "write denoiser/attention"),
        ({"targets": ["attentoin"]}, "did you mean attention?"),
        ({"rank_pattern": {"*attn9*": 3}}, r"rank_pattern: no layer with an adapter matches '\*attn9\*'"),
        ({"rank_pattern": {"*conv1": 3}}, "rank_pattern: no layer with an adapter matches"),
        ({"alpha_pattern": {"*to_q": 3, "denoiser/mid_blok*": 1}}, "alpha_pattern: no layer with an adapter"),
        ({"alpha_pattern": {"text_encoder/*": 3}}, "alpha_pattern: text_encoder/.* is for text_encoder"),
    ],
)
def test_patterns_that_match_no_layer_are_refused(
    model_files: ModelFiles, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(WeightsError, match=sentence) as caught:
        adapter(model_files, **settings)
    assert caught.value.code == "E1437"


def test_last_matching_pattern_decides_rank_and_alpha(model_files: ModelFiles) -> None:
    patterns = {"*attn1*": 8, "denoiser/mid_block*": 3}
    trained = adapter(model_files, rank_pattern=patterns, alpha_pattern={"*attn2*": 0.5})
    ranks, alphas = trained.shapes["denoiser"].ranks, trained.shapes["denoiser"].alphas
    for path in trained.shapes["denoiser"].layers:
        rank = 3 if path.startswith("mid_block") else 8 if "attn1" in path else None
        assert (ranks.get(path), alphas.get(path)) == (rank, 0.5 if "attn2" in path else None)
    assert str(trained) == "lora of ranks 2 to 8"
    assert str(adapter(model_files)) == "lora of rank 2"


def test_parameters_have_checkpoint_names_and_are_counted(model_files: ModelFiles) -> None:
    trained = adapter(model_files, BOTH)
    parameters = trained.put_on(parts_of(model_files, *BOTH))
    assert {name.partition("/")[0] for name in parameters} == set(BOTH)
    assert all(name.endswith(("lora_down.weight", "lora_up.weight")) for name in parameters)
    assert sum(trained.numbers.values()) == sum(p.numel() for p in parameters.values())
    written = trained.as_file({name: p.detach() for name, p in parameters.items()})
    assert set(written.components) == {"unet", "text_encoder"}
    assert len(parameters) == 2 * len(written.modules)


def test_change_above_max_norm_is_scaled_down(model_files: ModelFiles) -> None:
    trained = adapter(model_files, targets=["*mid_block*.to_q", "*mid_block*.to_k"], max_norm=1.5)
    weights = {name: p.detach() for name, p in trained.put_on(parts_of(model_files, "denoiser")).items()}
    draw = torch.Generator().manual_seed(0)
    for name, tensor in weights.items():
        tensor.normal_(std=5.0 if "to_q" in name else 0.01, generator=draw)
    before = {name: tensor.clone() for name, tensor in weights.items()}
    trained.shorten(weights)
    for layer, module in trained.modules(weights).items():
        norm = float(module.difference(trained.names.weights[layer]).norm())
        assert norm == pytest.approx(1.5, rel=1e-5) if "to_q" in layer.path else norm < 1.5
    assert all(torch.equal(weights[name], before[name]) for name in weights if "to_k" in name)


def test_pissa_starts_without_effect_and_is_exported_as_a_difference(
    model_files: ModelFiles,
) -> None:
    trained, parts = adapter(model_files, init="pissa", targets=["*mid_block*.to_q"]), parts_of(model_files, "denoiser")
    own = {name.removesuffix(".weight"): t.clone() for name, t in parts["denoiser"].state_dict().items()}
    weights = {name: p.detach().clone() for name, p in trained.put_on(parts).items()}
    kept = trained.tensors()
    assert {name.removeprefix(START) for name in kept} == weights.keys()
    for layer, module in trained.as_file(weights).modules.items():
        change = module.difference(trained.names.weights[layer])
        assert module.rank == 4, "twice the rank: the values after and before training"
        assert float(change.abs().max()) < 1e-6 * float(own[layer.path].abs().max())
        weights[f"denoiser/{layer.path}.lora_up.weight"] *= 2
    moved = next(iter(trained.as_file(weights).modules.values()))
    assert float(moved.difference(tuple(own[layer.path].shape)).norm()) > 0.1


@pytest.mark.parametrize("record", ["sd_lokr_r2_a4_factor4", "sd_loha_r2_a4", "sd_dora_r4_a8"])
def test_adapters_of_other_tools_can_be_trained_further(record: str) -> None:
    """The LoKr has full and decomposed second factors, and no header with its factor."""
    settings = ModelSettings(path=SD, adapter={"path": FILES / f"{record}.lycoris.safetensors"})  # type: ignore[arg-type]
    model_files_of_base = Family.files.of(settings)
    trained = TrainedAdapter.of(settings, model_files_of_base)
    parameters = trained.put_on(dict(Family.load(model_files_of_base, ["denoiser"]).parts()))
    written = trained.as_file({name: p.detach() for name, p in parameters.items()})
    assert trained.initial is not None
    assert written.modules.keys() == trained.initial.modules.keys()
    for layer, module in written.modules.items():
        weight = torch.randn(trained.names.weights[layer], generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(module.merge_into(weight), trained.initial.modules[layer].merge_into(weight))


MATRIX = LayerName("unet", "mid_block.attentions.0.transformer_blocks.0.attn1.to_q")
WINDOW = LayerName("unet", "mid_block.resnets.0.conv1")


def module(kind: Any, **shapes: tuple[int, ...]) -> AdapterModule:
    """An adapter of ones. shapes: by leaf, `_` for the dot."""
    return AdapterModule(kind, {leaf.replace("_weight", ".weight"): torch.ones(s) for leaf, s in shapes.items()}, 2.0)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("magnitudes", r"attn1\.to_q is a LoKr with DoRA magnitudes"),
        ("window", r"conv1 is a convolution's LoRA with three factors"),
        ("columns", r"attn1\.to_q is a DoRA with magnitudes of columns"),
        ("mixed", r"layers of several kinds \(loha, lora\), which cannot be trained together"),
    ],
)
def test_adapter_that_cannot_be_trained_is_refused_with_advice(
    kind: str, sentence: str, model_files: ModelFiles, tmp_path: Path
) -> None:
    names = adapter(model_files).names
    width, window = names.weights[MATRIX][0], names.weights[WINDOW][0]
    lora = module("lora", lora_down_weight=(2, width), lora_up_weight=(width, 2))
    pair: dict[str, tuple[int, ...]] = {"a": (width, 2), "b": (2, width)}
    held = {
        "magnitudes": {MATRIX: module("lokr", lokr_w1=(2, 2), lokr_w2=(width // 2, width // 2), dora_scale=(width, 1))},
        "window": {
            WINDOW: module(
                "lora",
                lora_down_weight=(2, window, 1, 1),
                lora_up_weight=(window, 2, 1, 1),
                lora_mid_weight=(2, 2, 3, 3),
            )
        },
        "columns": {MATRIX: replace(lora, tensors={**lora.tensors, MAGNITUDE: torch.ones(1, width)})},
        "mixed": {
            MATRIX: lora,
            LayerName("unet", MATRIX.path.replace("to_q", "to_k")): module(
                "loha", **{f"hada_w{n}_{f}": s for n in "12" for f, s in pair.items()}
            ),
        },
    }[kind]
    file = tmp_path / "a.safetensors"
    writing.write(Adapter(held), file, names, "kohya")
    settings = ModelSettings(path=shipped_folder("tiny-sd"), adapter={"path": file})  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match=sentence) as caught:
        TrainedAdapter.of(settings, model_files)
    assert caught.value.code == "E1440"
    assert "mezzotint resize FILE NEW.safetensors --base=MODEL --rank=N" in str(caught.value)
