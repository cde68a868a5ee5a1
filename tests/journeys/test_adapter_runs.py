"""Runs that train an adapter: killed and resumed, in several processes, with small data types; their files, also in
diffusers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.adapters import files, merging
from mezzotint.adapters.names import LayerNames
from mezzotint.cli import main
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from support.rounding import within
from support.run_folders import assert_alike, logged, tensors_of

SETTINGS = {
    "model__adapter__kind": "dora", "model__adapter__rank": 3, "model__adapter__dropout": 0.2, "run__steps": 4,
    "run__save__every": 2, "optim__accumulation": 2, "data__batch_size": 5, "optim__lr": 3e-3,
}  # fmt: skip
BOTH = {"model__train": "[denoiser, text_encoder]", "optim__part_lr": {"text_encoder": 1e-3}}


@pytest.fixture(scope="module")
def whole(shared_world: Any) -> Path:
    assert shared_world.wait(shared_world.fork("whole", **SETTINGS, **BOTH)) == 0, shared_world.out("whole")
    return Path(shared_world.root / "whole")


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(shared_world: Any, whole: Path) -> None:
    world, settings = shared_world, SETTINGS | BOTH
    killed = settings | {"run__save__asynchronous": False}  # the checkpoint of step 2 is complete when step 3 begins
    assert world.wait(world.fork("killed", fault="step.backward@3:kill", **killed)) == 137
    assert world.wait(world.fork("killed", **settings)) == 0, world.out("killed")
    assert "resuming from step-00000002" in world.out("killed")
    assert world.end("killed").tensors == world.end("whole").tensors
    for file in (whole / "exports").rglob("*.safetensors"):
        other = world.root / "killed" / file.relative_to(whole)
        other = other if other.exists() else other.with_name("killed.safetensors")
        assert all(torch.equal(tensor, load_file(other)[name]) for name, tensor in load_file(file).items())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lokr-both", "pissa", "nf4"])
def test_each_kind_of_adapter_resumes_bit_exactly(shared_world: Any, kind: str) -> None:
    own = {"kind": kind} | ({"kind": "lora", "init": "pissa"} if kind == "pissa" else {})
    if kind == "lokr-both":
        own = {"kind": "lokr", "decompose_both": True, "factor": 8}
    settings = {"model__adapter__rank": 2, "run__steps": 3, "run__save__every": 2, "run__export__every": None}
    if kind == "nf4":
        pytest.importorskip("torchao")
        own, settings = {"kind": "lora"}, settings | {"run__frozen_dtype": kind}
    settings |= {f"model__adapter__{name}": value for name, value in own.items()}
    world = shared_world
    assert world.wait(world.fork(f"all-{kind}", **settings)) == 0, world.out(f"all-{kind}")
    assert world.wait(world.fork(f"cut-{kind}", fault="step.begin@3:kill", **settings)) == 137
    assert world.wait(world.fork(f"cut-{kind}", **settings)) == 0, world.out(f"cut-{kind}")
    assert world.end(f"cut-{kind}").tensors == world.end(f"all-{kind}").tensors


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("runtime", ["ddp", "fsdp"])
def test_two_processes_end_as_one_does(shared_world: Any, whole: Path, runtime: str) -> None:
    world = shared_world
    for child in world.fork_group(runtime, 2, run__runtime=runtime, **SETTINGS, **BOTH):
        assert world.wait(child) == 0, world.out(runtime)
    assert logged(world.root / runtime, "loss") == pytest.approx(logged(whole, "loss"), rel=1e-4)
    assert_alike(tensors_of(world.root / runtime), tensors_of(whole))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    "adapter",
    [
        {"kind": "oft", "block_size": 8},
        {"kind": "lora", "rank": 3, "rank_dropout": 0.3, "module_dropout": 0.3, "b_lr_ratio": 4},
    ],
    ids=["oft", "dropouts and LoRA+"],
)
def test_other_adapters_with_sharded_weights_end_as_one_process_and_resume(
    shared_world: Any, adapter: dict[str, Any]
) -> None:
    world, name = shared_world, f"one {adapter['kind']}"
    settings = {f"model__adapter__{key}": value for key, value in adapter.items()} | {"run__save__every": 2}
    assert world.wait(world.fork(name, **settings, run__steps=4)) == 0, world.out(name)
    for steps in (2, 4):
        for child in world.fork_group(f"{name} fsdp", 2, run__runtime="fsdp", **settings, run__steps=steps):
            assert world.wait(child) == 0, world.out(f"{name} fsdp")
    assert_alike(tensors_of(world.root / f"{name} fsdp"), tensors_of(world.root / name))
    for steps in (2, 4):
        assert world.wait(world.fork(f"{name} cut", **settings, run__steps=steps)) == 0, world.out(f"{name} cut")
    assert world.end(f"{name} cut").tensors == world.end(name).tensors


@pytest.mark.slow
@pytest.mark.distributed
def test_pissa_with_sharded_weights_equals_one_process(shared_world: Any) -> None:
    world = shared_world
    settings = {"model__adapter__kind": "lora", "model__adapter__init": "pissa", "run__save__every": 2}
    assert world.wait(world.fork("taken", **settings, run__steps=4)) == 0, world.out("taken")
    for steps in (2, 4):
        for child in world.fork_group("taken-fsdp", 2, run__runtime="fsdp", **settings, run__steps=steps):
            assert world.wait(child) == 0, world.out("taken-fsdp")
    assert_alike(tensors_of(world.root / "taken-fsdp"), tensors_of(world.root / "taken"))


def test_checkpoints_hold_only_adapter_parameters(whole: Path) -> None:
    tensors = tensors_of(whole)
    trained = {name.removeprefix("w/"): t.numel() for name, t in tensors.items() if name.startswith("w/")}
    assert {name.rpartition(".")[2] for name in trained} == {"weight", "dora_scale"}
    assert all("lora_" in name or name.endswith("dora_scale") for name in trained)
    kept = sum(t.numel() for name, t in tensors.items() if name.startswith(("w/", "ema/", "opt.mean/", "opt.square/")))
    assert kept == 4 * sum(trained.values())


def test_run_merged_file_and_diffusers_give_the_same_prediction(shared_world: Any, tmp_path: Path) -> None:
    """The adapter in a run, its file merged into the denoiser, and diffusers with the file."""
    import diffusers

    world, base = shared_world, tmp_path / "base"
    settings = {
        "model__train": "[denoiser, text_encoder]",
        "optim__lr": 1e-2,
        "run__steps": 2,
        "optim__ema__rule": "none",
    }
    assert world.train("plain", **settings | {"optim__lr": 1e-9, "run__export__folder": base}) == 0
    lora = {
        "model__path": base,
        "model__weights": "files",
        "model__adapter__kind": "rslora",
        "model__adapter__alpha": 9,
    }
    assert world.train("adapted", **settings | lora) == 0
    folder = world.root / "adapted" / "exports" / "step-00000002"
    family = Family.of(ModelSettings(path=base))
    opened = Family.files.of(ModelSettings(path=base))
    names = LayerNames.of(opened)
    before = {name: p.clone() for name, p in family.parts()["denoiser"].named_parameters()}
    by_layout = [files.read(path, names) for path in sorted(folder.glob("*.safetensors"))]
    for component, part in (("unet", "denoiser"), ("text_encoder", "text_encoder")):
        merging.merge_into(family.parts()[part], component, [(by_layout[0], 1.0)])
    assert any(not torch.equal(p, before[name]) for name, p in family.parts()["denoiser"].named_parameters())
    x, t, words = (
        torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(0)),
        torch.tensor([900, 20]),
        ["a", "b"],
    )

    def predicted(unet: Any, states: Tensor) -> Tensor:
        with torch.no_grad():
            out: Tensor = unet(x, t, encoder_hidden_states=states, return_dict=False)[0]
            return out

    with torch.no_grad():
        states = family.encode_text(words).states
    ours = predicted(family.parts()["denoiser"], states)
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(base, safety_checker=None)
    plain = predicted(pipe.unet, states)
    pipe.load_lora_weights(str(folder))
    ids = pipe.tokenizer(words, padding="max_length", max_length=pipe.tokenizer.model_max_length, return_tensors="pt")
    with torch.no_grad():
        theirs = pipe.text_encoder(ids.input_ids)[0]
    assert float((theirs - states).abs().max()) < 1e-5
    assert float((predicted(pipe.unet, states) - ours).abs().max()) < 1e-5 < float((plain - ours).abs().max())
    assert len(by_layout) == 2
    for layer, module in by_layout[0].modules.items():
        shape = names.weights[layer]
        within(by_layout[1].modules[layer].difference(shape), module.difference(shape), roundings=64)


@pytest.mark.slow
def test_adapter_on_a_bf16_base_is_trained_in_float32(shared_world: Any, capsys: Any) -> None:
    settings = {"run__frozen_dtype": "bf16", "run__precision": "bf16", "model__adapter__kind": "lora", "run__steps": 2}
    assert shared_world.train("small", **settings) == 0
    tensors = tensors_of(shared_world.root / "small")
    assert {t.dtype for name, t in tensors.items() if name.startswith("w/")} == {torch.float32}
    masters = shared_world.train("masters", **settings, run__weight_dtype="same")
    assert masters == 0, capsys.readouterr().out


def test_sampling_with_an_adapter_of_another_model_is_refused(shared_world: Any, capsys: Any, whole: Path) -> None:
    file = next((whole / "exports").rglob(files.DIFFUSERS_NAME))
    assert main(["sample", "tiny-sdxl", f"--adapter={file}", "--prompt=x", "model.weights=random"]) == 2
    assert "error[E14" in capsys.readouterr().err
    assert main(["sample", str(whole), "--adapter=nothing.safetensors", "--prompt=x"]) == 2
    assert "write --adapter=FILE" in capsys.readouterr().err
