"""Rows of the section `model.adapter`: kinds, layers, initialisation, export."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.adapters import files, writing
from mezzotint.adapters.names import LayerNames
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.runtimes import base
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.train import exports
from support.rounding import within

Prepare = Callable[..., Any]
LORA = {"model__adapter__kind": "lora", "model__adapter__rank": 4, "model__adapter__targets": "[attention]"}
QUERY = "denoiser/mid_block.attentions.0.transformer_blocks.0.attn1.to_q"


def adapter_weights(ready: Any) -> dict[str, Tensor]:
    return dict(ready.trainer.model.update.masters)


def module(ready: Any, name: str = QUERY) -> Any:
    """The adapter of a layer, by part and path."""
    layers = ready.trainer.model.adapter.modules(adapter_weights(ready))
    return next(one for layer, one in layers.items() if name.endswith(f"/{layer.path}"))


# breaks if the rate of a layer's adapter is not that of its pattern, or 0 does not leave the adapter out
@pytest.mark.effect("optim.part_lr")
def test_part_lr_sets_the_rate_of_layers_with_an_adapter(prepare: Prepare) -> None:
    rates = {"denoiser/mid_block.*": 2e-3, "denoiser/*.to_k": 0}
    settings = {"optim__lr": 1e-3, "optim__optimizer__weight_decay": 0, "optim__clip__norm": "null"}
    step = prepare(optim__part_lr=rates, **LORA, **settings).step()
    assert not [name for name in step.after if ".to_k." in name]
    assert [name for name in prepare(**LORA, **settings).step().after if ".to_k." in name]
    for name in step.after:
        rate = 2e-3 if name.startswith("denoiser/mid_block.") else 1e-3
        direction = step.grads[name] / (step.grads[name].abs() + 1e-8)
        torch.testing.assert_close(step.moved(name), -rate * direction, rtol=1e-3, atol=1e-6)
    with pytest.raises(RecipeError, match="did you mean denoiser/mid_block"):
        prepare(optim__part_lr={f"{QUERY}s": 1e-3}, **LORA)
    with pytest.raises(RecipeError, match="which then get no adapter"):
        prepare(optim__part_lr=rates, model__adapter__path="a.safetensors")


# breaks if the kind does not decide which factors are trained
@pytest.mark.effect("model.adapter.kind")
@pytest.mark.parametrize(
    ("kind", "leaves"),
    [
        ("lora", {"lora_down.weight", "lora_up.weight"}),
        ("rslora", {"lora_down.weight", "lora_up.weight"}),
        ("dora", {"lora_down.weight", "lora_up.weight", "dora_scale"}),
        ("loha", {"hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"}),
        ("lokr", {"lokr_w1", "lokr_w2_a", "lokr_w2_b"}),
    ],
)
def test_adapter_kind_selects_the_trained_factors(prepare: Prepare, kind: str, leaves: set[str]) -> None:
    rank = 1 if kind == "lokr" else 2
    settings = {"model__adapter__kind": kind, "model__adapter__rank": rank, "model__adapter__alpha": 2 * rank}
    ready = prepare(**LORA | settings)
    assert {name.removeprefix(f"{QUERY}.") for name in adapter_weights(ready) if name.startswith(QUERY)} == leaves
    assert module(ready).scale == pytest.approx(4 / 2**0.5 if kind == "rslora" else 2)
    frozen = {n: p.clone() for n, p in ready.family.parts()["denoiser"].named_parameters() if not p.requires_grad}
    step = ready.step()
    assert step.largest("denoiser") > 0, "and it moves"
    after = dict(ready.family.parts()["denoiser"].named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in frozen.items()), "and no other weight"
    assert {p.grad is None for p in after.values()} == {True}


# breaks if an OFT trains something else than rotations of the inputs, its file loses them, or blocks have another size
@pytest.mark.effect("model.adapter.kind", "model.adapter.block_size")
def test_oft_rotates_the_inputs_of_layers(prepare: Prepare) -> None:
    settings = {"model__adapter__kind": "oft", "model__adapter__targets": "[attention+mlp]", "optim__lr": 0.05}
    plain = {"optim__ema__rule": "none", "run__name": "a"}
    ready = prepare(**settings, **plain, model__adapter__block_size=8)
    inputs = ready.trainer.model.adapter.names.weights
    for name, weights in adapter_weights(ready).items():
        layer = next(layer for layer in inputs if name == f"denoiser/{layer.path}.oft_R.weight")
        assert tuple(weights.shape) == (inputs[layer][1] // 8, 28), "8 · 7 / 2 numbers for each block"
        assert not weights.any(), "no rotation at first"
    for _ in range(2):
        ready.step()
    (folder,) = ready.job.host.write_exports(ready.trainer)
    assert [path.name for path in folder.glob("*.safetensors")] == [files.DIFFUSERS_NAME]
    written = files.read(folder / files.DIFFUSERS_NAME, LayerNames(ready.trainer.model.files.trainable_shapes()))
    network = ready.family.parts()["denoiser"]
    for layer, adapter in written.modules.items():
        trained = network.get_submodule(layer.path)
        weight = trained.base_layer.weight.detach()
        merged = adapter.merge_into(weight)
        assert not torch.equal(merged, weight)
        by_peft = (trained.get_delta_weight("default") @ weight.flatten(1).T).T.reshape(weight.shape)
        within(merged, by_peft.detach(), roundings=64)
    resumed = prepare(model__adapter__path=folder / files.DIFFUSERS_NAME, **plain)
    assert str(resumed.trainer.model.adapter) == "oft in blocks of 8"
    continued, ended = adapter_weights(resumed), adapter_weights(ready)
    for name, weights in ended.items():
        within(continued[name], weights, roundings=2**16)  # the file is in fp16
    assert resumed.step().largest("denoiser") > 0
    with pytest.raises(WeightsError, match="is a convolution of 3×3"):
        prepare(model__adapter__kind="oft", model__adapter__targets="[all]")


def test_without_adapter_kind_there_is_no_adapter(prepare: Prepare) -> None:
    assert prepare().trainer.model.adapter is None


# breaks if the rank is fixed
@pytest.mark.effect("model.adapter.rank")
def test_rank_is_the_inner_dimension(prepare: Prepare) -> None:
    assert [module(prepare(**LORA | {"model__adapter__rank": rank})).rank for rank in (1, 5)] == [1, 5]


# breaks if alpha does not scale the update, or defaults to 1
@pytest.mark.effect("model.adapter.alpha")
def test_alpha_over_rank_is_the_scale(prepare: Prepare) -> None:
    assert module(prepare(**LORA)).scale == 1
    assert module(prepare(**LORA, model__adapter__alpha=1)).scale == 0.25


# breaks if other layers get an adapter, or the word of one part applies to all parts
@pytest.mark.effect("model.adapter.targets")
def test_targets_accept_presets_and_patterns(prepare: Prepare) -> None:
    def layers(targets: str, **settings: Any) -> set[str]:
        ready = prepare(**LORA | {"model__adapter__targets": targets} | settings)
        return {f"{part}/{path}" for part, s in ready.trainer.model.adapter.shapes.items() for path in s.layers}

    assert {path.rpartition(".")[2] for path in layers("[attention]")} == {"to_q", "to_k", "to_v", "0"}
    assert any("proj_in" in path for path in layers("[attention+mlp]"))
    assert not any("conv1" in path for path in layers("[all-linear]"))
    assert any("conv1" in path for path in layers("[all]"))
    both = {"model__train": "[denoiser, text_encoder]", "data__cache__text": False}
    chosen = layers('["denoiser/*attn2.to_k", "text_encoder/*fc1"]', **both)
    assert {(path.partition("/")[0], path.rpartition(".")[2]) for path in chosen} == {
        ("denoiser", "to_k"), ("text_encoder", "fc1"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [("['*attn9*']", "no layer of unet matches"), ("['denoiser/attention']", "matches no layer of text_encoder")],
)
def test_targets_without_a_match_are_refused(prepare: Prepare, targets: str, sentence: str) -> None:
    both = {"model__train": "[denoiser, text_encoder]", "data__cache__text": False}
    with pytest.raises(WeightsError, match=sentence) as caught:
        prepare(**LORA | {"model__adapter__targets": targets} | (both if "denoiser/" in targets else {}))
    assert caught.value.code == "E1437"


# breaks if a pattern's rank does not apply to its layers, or the first matching pattern has priority
@pytest.mark.effect("model.adapter.rank_pattern", "model.adapter.alpha_pattern")
def test_last_matching_pattern_sets_rank_and_alpha(prepare: Prepare) -> None:
    ready = prepare(
        **LORA,
        model__adapter__rank_pattern={"*attn1*": 8, "denoiser/*attn1.to_q": 2},
        model__adapter__alpha_pattern={"*to_k": 3},
    )
    of = {end: module(ready, QUERY.replace("to_q", end)) for end in ("to_q", "to_k", "to_v")}
    assert [each.rank for each in of.values()] == [2, 8, 8]
    assert [each.scale for each in of.values()] == [1, 3 / 8, 1]


# breaks if the two factors are always as equal as possible
@pytest.mark.effect("model.adapter.factor")
def test_factor_is_the_size_of_the_smaller_lokr_matrix(prepare: Prepare) -> None:
    lokr = LORA | {"model__adapter__kind": "lokr", "model__adapter__rank": 2}
    assert module(prepare(**lokr)).tensors["lokr_w1"].shape == (4, 4)
    assert module(prepare(**lokr, model__adapter__factor=2)).tensors["lokr_w1"].shape == (2, 2)


# breaks if the first matrix is not decomposed, or the exported weights are not the trained ones
@pytest.mark.effect("model.adapter.decompose_both")
def test_decompose_both_factorizes_both_lokr_matrices(prepare: Prepare) -> None:
    lokr = LORA | {"model__adapter__kind": "lokr", "model__adapter__rank": 1, "model__adapter__alpha": 3}
    ready = prepare(**lokr, model__adapter__decompose_both=True, optim__lr=0.1, optim__ema__rule="none", run__name="a")
    factors = {"lokr_w1_a", "lokr_w1_b", "lokr_w2_a", "lokr_w2_b"}
    assert {name.removeprefix(f"{QUERY}.") for name in adapter_weights(ready) if name.startswith(QUERY)} == factors
    for _ in range(2):
        ready.step()
    (folder,) = ready.job.host.write_exports(ready.trainer)
    names = LayerNames(ready.trainer.model.files.trainable_shapes())
    written = files.read(folder / "a.safetensors", names)
    resumed = prepare(model__adapter__path=folder / "a.safetensors")
    assert str(resumed.trainer.model.adapter) == "lokr of rank 1"
    for layer, adapter in written.modules.items():
        change = adapter.difference(names.weights[layer])
        assert float(change.abs().max()) > 1e-3, "and it moves"
        for each in (ready, resumed):
            trained = each.family.parts()["denoiser"].get_submodule(layer.path).get_delta_weight("default")
            within(change, trained.detach(), roundings=64)
    assert resumed.step().largest("denoiser") > 0


# breaks if nothing is dropped, or draws depend on earlier ones
@pytest.mark.effect("model.adapter.dropout")
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_adapter_dropout_is_independent_of_batch_splits(prepare: Prepare, kind: str) -> None:
    def gradients(**settings: Any) -> dict[str, Tensor]:
        adapter = {"model__adapter__kind": kind, "model__adapter__init": "gaussian"}
        return dict(prepare(**LORA | adapter | settings).step().grads)

    plain, dropped = gradients(), gradients(model__adapter__dropout=0.5)
    assert not torch.equal(plain[f"{QUERY}.lora_up.weight"], dropped[f"{QUERY}.lora_up.weight"])
    torch.rand(7)  # independent of other draws, of how a batch is split, and of recomputing
    again = gradients(model__adapter__dropout=0.5, run__micro_batch=1, run__gradient_checkpointing__enabled=True)
    for name, gradient in dropped.items():
        within(again[name], gradient, roundings=256)


# breaks if all kinds of initialisation are the same, or pissa changes the model's output
@pytest.mark.effect("model.adapter.init")
def test_adapter_init_sets_the_first_factor(prepare: Prepare) -> None:
    wide = LORA | {"model__adapter__rank": 8}
    ready = {init: prepare(**wide, model__adapter__init=init) for init in ("kaiming", "gaussian", "pissa")}
    down = {init: adapter_weights(each)[f"{QUERY}.lora_down.weight"] for init, each in ready.items()}
    assert float(down["kaiming"].abs().max()) <= 16**-0.5
    assert 0.06 < float(down["gaussian"].std()) < 0.19
    values = [each.next_batches() and each.step().report.loss for each in ready.values()]
    assert values == pytest.approx([values[0]] * 3, rel=1e-4)
    weight = ready["pissa"].family.parts()["denoiser"].get_parameter(f"{QUERY[9:]}.base_layer.weight")
    original = ready["kaiming"].family.parts()["denoiser"].get_parameter(f"{QUERY[9:]}.base_layer.weight")
    product = module(prepare(**wide, model__adapter__init="pissa")).difference(tuple(weight.shape))
    within(weight + product, original, roundings=256)
    assert float(torch.linalg.matrix_norm(weight, 2)) < float(torch.linalg.matrix_norm(original, 2))


# breaks if the norm of changes can exceed it, or small changes are enlarged
@pytest.mark.effect("model.adapter.max_norm")
@pytest.mark.parametrize("kind", ["lora", "loha", "lokr"])
def test_max_norm_bounds_the_change_of_a_layer(prepare: Prepare, kind: str) -> None:
    settings = LORA | {"model__adapter__kind": kind, "optim__lr": 0.1}
    free, held = prepare(**settings), prepare(**settings, model__adapter__max_norm=0.05)
    lengths = []
    for ready in (free, held):
        ready.step()
        adapter = ready.trainer.model.adapter
        layers = adapter.modules(adapter_weights(ready)).items()
        lengths.append([float(each.difference(adapter.names.weights[layer]).norm()) for layer, each in layers])
    assert max(lengths[0]) > 0.06
    assert max(lengths[1]) <= 0.0501
    for before, after in zip(*lengths, strict=True):
        assert after == pytest.approx(min(before, 0.05), rel=1e-3)


# breaks if a setting trains the model's own weights in addition to the adapter, or no longer trains the adapter
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"run__compile": True, "run__precision": "bf16"},
        {
            "run__precision": "fp16", "run__gradient_checkpointing__enabled": True, "optim__accumulation": 2,
            "run__micro_batch": 1, "optim__ema__rule": "ramp", "objective__loss": "huber",
            "objective__huber_delta": 0.1, "objective__min_snr_gamma": 5.0, "objective__noise_offset": 0.1,
            "model__prediction": "v",
        },
        {
            "optim__in_backward": True, "optim__clip__norm": None, "objective__loss": "l1",
            "objective__input_perturbation": 0.1, "objective__pyramid_discount": 0.5,
            "optim__optimizer__kind": "adafactor", "data__cache__latents": False, "data__cache__text": False,
        },
    ],
    ids=["compile", "fp16-huber", "in-backward-l1"],
)  # fmt: skip
def test_adapter_trains_under_other_settings(
    settings: dict[str, Any], prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "run__compile" in settings:  # one block, traced but run without a C++ compiler
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
        compile_blocks = base.compile_blocks
        monkeypatch.setattr("mezzotint.tasks.assemble.compile_blocks", lambda b, s: compile_blocks(b[1:2], s))
    ready = prepare(**LORA | {"model__adapter__kind": "dora"} | settings)
    network = ready.family.parts()["denoiser"]
    frozen = {n: p.detach().clone() for n, p in network.named_parameters() if not p.requires_grad}
    before = {name: weight.detach().clone() for name, weight in adapter_weights(ready).items()}
    assert 0 < ready.trainer.train_step(ready.next_batches()).result().loss < 1e4
    assert any(not torch.equal(weight, before[name]) for name, weight in adapter_weights(ready).items())
    after = dict(network.named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in frozen.items())
    assert all("lora_" in name or name.endswith("dora_scale") for name in before)


# breaks if the file is not read, or other ranks and alphas than the file's are used
@pytest.mark.effect("model.adapter.path")
@pytest.mark.parametrize("layout", ["diffusers", "kohya"])
def test_adapter_path_resumes_from_either_layout(prepare: Prepare, tmp_path: Path, layout: Any) -> None:
    first = prepare(**LORA, model__adapter__rank_pattern={"*attn1*": 2}, model__adapter__alpha_pattern={"*to_k": 3})
    first.step()
    adapter = first.trainer.model.adapter
    file = tmp_path / "begun.safetensors"
    writing.write(adapter.as_file(adapter_weights(first)), file, adapter.names, layout)
    second = prepare(model__adapter__path=file)
    for name, tensor in adapter_weights(first).items():
        # diffusers' layout has the strength in its tensors: multiplied by 3/2 when written, divided when read
        within(adapter_weights(second)[name], tensor, roundings=2 if layout == "diffusers" else 0, of="each", name=name)
    layers = adapter.modules(adapter_weights(first))
    for layer, other in second.trainer.model.adapter.modules(adapter_weights(second)).items():
        assert other.scale == pytest.approx(layers[layer].scale)
    assert "adapter" in second.job.host.identity.parts, "another file makes another run"
    with pytest.raises(WeightsError, match=r"is of kind lora, but model\.adapter\.kind is dora") as caught:
        prepare(model__adapter__path=file, model__adapter__kind="dora")
    assert caught.value.code == "E1440"


# breaks if the trigger word is not written into the file, or only one layout is ever written
@pytest.mark.effect("model.adapter.trigger", "run.export.adapter")
def test_adapter_files_of_both_layouts_have_metadata(prepare: Prepare) -> None:
    ready = prepare(**LORA, model__adapter__trigger="sks fox", run__name="fox")
    host, trainer = ready.job.host, ready.trainer
    (folder, _) = host.write_exports(trainer)
    assert {path.name for path in folder.glob("*.safetensors")} == {files.DIFFUSERS_NAME, "fox.safetensors"}
    names = LayerNames(trainer.model.files.trainable_shapes())
    for path in folder.glob("*.safetensors"):
        adapter = files.read(path, names)
        words = adapter.metadata
        assert words["modelspec.trigger_phrase"] == "sks fox"
        assert words["modelspec.architecture"].endswith("/lora")
        assert words["ss_network_module"] == "networks.lora"
        assert (words["ss_network_dim"], words["ss_base_model_version"]) == ("4", "sd_v1")
        assert words["sshs_model_hash"] == words["modelspec.hash_sha256"].removeprefix("0x") != "0" * 64
        assert trainer.model.files.fingerprint("denoiser") in words["mezzotint.base"]
        assert not any(str(ready.folder.path) in value for value in words.values())
    for layout, name in (
        ("diffusers", files.DIFFUSERS_NAME),
        ("kohya", f"{ready.recipe.run.name}.safetensors"),
    ):
        one = prepare(
            **LORA, run__export__adapter=layout, run__name=ready.recipe.run.name, optim__ema__rule="none",
            data__captions__trigger="zwx",
        )  # fmt: skip
        (folder,) = one.job.host.write_exports(one.trainer)
        assert [path.name for path in folder.glob("*.safetensors")] == [name]
        assert files.read(folder / name, names).metadata["modelspec.trigger_phrase"] == "zwx"
        assert exports.facts(one.job.resolved.recipe, one.trainer)["steps"] == 0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{rank: 4}", "model.adapter.kind is none"),
        ("{kind: loha, dropout: 0.1}", "is for lora, rslora and dora"),
        ("{kind: lora, factor: 4}", "factor is for lokr"),
        ("{kind: lora, decompose_both: true}", "decompose_both is for lokr"),
        ("{kind: dora, init: pissa}", "leave one out"),
        ("{kind: lora, path: a.safetensors, rank: 4}", "come from the file"),
        ("{kind: lora, rank: 0}", "greater than 0"),
        ("{kind: oft, rank: 8}", "rank is for other kinds, not for oft"),
        ("{kind: oft, max_norm: 1}", "max_norm is for other kinds"),
        ("{kind: oft, dropout: 0.1}", "dropout is for lora, rslora and dora, not for oft"),
        ("{kind: lora, block_size: 8}", "block_size is for oft"),
    ],
)
def test_conflicting_adapter_settings_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(RecipeError, match=sentence):
        read_text(f"model: {{adapter: {text}}}")


@pytest.mark.parametrize(
    "other",
    [
        "model: {adapter: {kind: lora}, freeze: ['*bias']}",
        "{model: {adapter: {kind: lora}}, optim: {ema: {rule: constant, start: model}}}",
        "{model: {adapter: {kind: lora}}, run: {export: {single_file: true}}}",
        "{model: {adapter: {kind: lora, max_norm: 1}}, run: {runtime: fsdp}}",
    ],
)
def test_whole_model_settings_are_refused_with_an_adapter(other: str) -> None:
    with pytest.raises(RecipeError, match="adapter"):
        read_text(other)
