"""Rows of the section `run` that concern computing: length, folder, precision, memory, processes, resuming.

What a run writes is in `test_writing_effects.py`.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import os
import shutil
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from mezzotint import fault_injection
from mezzotint.cli import main
from mezzotint.errors import CheckpointError, Diverged, RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes import base, ddp, single
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.shared.offload import Offload
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.run import RunSettings
from mezzotint.tasks.train import prepare as preparing
from mezzotint.tasks.train import resume
from mezzotint.training.checkpoints import state
from mezzotint.training.checkpoints.background_save import Saves
from mezzotint.weights.low_bit import LowBitLinear

Prepare = Callable[..., Any]


def settings_of(**settings: Any) -> RunSettings:
    words = [f"run.{name}={value}" for name, value in settings.items()]
    return read_text("schema: 1", overrides=words).recipe.run


# --- length and folder ----------------------------------------------------------------------------------------------


# breaks if the folder is not named after the run
@pytest.mark.effect("run.name")
def test_run_name_is_the_folder_below_runs(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(run__name="mine", run__folder="null")
    assert (tmp_path / "runs" / "mine" / "recipe.yaml").is_file()
    assert "run mine in" in capsys.readouterr().out


# breaks if the run is always in runs/NAME
@pytest.mark.effect("run.folder")
def test_run_folder_holds_the_run(prepare: Prepare, tmp_path: Path) -> None:
    ready = prepare(run__folder=tmp_path / "a" / "b")
    ready.trainer.host.save(ready.trainer)
    assert (tmp_path / "a" / "b" / "recipe.yaml").is_file()
    assert [p.name for p in (tmp_path / "a" / "b" / "checkpoints").iterdir()] == ["step-00000000"]


# breaks if a linked folder is written to without permission, or refused with it
@pytest.mark.effect("run.linked_folders")
def test_linked_folders_are_allowed_link_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run").open()
    (tmp_path / "big" / "exports").mkdir(parents=True)
    folder.exports.rmdir()
    folder.exports.symlink_to(tmp_path / "big" / "exports")
    (tmp_path / "mine.yaml").write_text(f"schema: 1\nrun: {{linked_folders: ['{tmp_path}/big']}}\n")
    line, allowed = f"run.folder={folder.path}", f"run.linked_folders={tmp_path}/big"
    with folder.lock():  # stops a start that is not refused earlier
        for words, code in (
            (["tiny_cpu", line], "E1160"),
            (["tiny_cpu", line, f"run.linked_folders=[{tmp_path}/bi, /big]"], "E1160"),
            (["tiny_cpu", line, allowed], "E1504"),
            ([str(tmp_path / "mine.yaml"), line], "E1504"),
        ):
            assert main(["train", *words]) == 2
            assert f"error[{code}]" in capsys.readouterr().err
    assert list((tmp_path / "big" / "exports").iterdir()) == []


# breaks if a draw does not depend on the seed: order, flips and crops, timesteps, noise, random weights
@pytest.mark.effect("run.seed")
def test_seed_determines_all_randomness(prepare: Prepare) -> None:
    def everything(seed: int) -> tuple[Any, ...]:
        ready = prepare(run__seed=seed, data__cache__latents=False)
        weights = ready.trainer.model.update.masters["denoiser/conv_in.weight"].clone()
        steps = [ready.step()]
        keys = [step.report.keys for step in steps]
        corners = [b.crop_top_left.tolist() for step in steps for b in step.batches.batches]
        return keys, corners, steps[0].report.timesteps, steps[0].report.loss, weights.sum().item()

    first, again, other = everything(3), everything(3), everything(4)
    assert first == again
    assert all(a != b for a, b in zip(first, other, strict=True))


# breaks if the run ends at another step
@pytest.mark.effect("run.steps")
@pytest.mark.parametrize("steps", [1, 2])
def test_steps_is_the_length_of_the_run(prepare: Prepare, steps: int) -> None:
    ready = prepare(run__steps=steps)
    ready.trainer.run()
    assert ready.trainer.progress.step == steps
    lines = (ready.folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, steps + 1))


# breaks if steps are not computed from the data set and epochs, or a partial epoch is lost
@pytest.mark.effect("run.epochs")
@pytest.mark.parametrize("epochs", [2, 1.5])
def test_epochs_are_resolved_into_steps(prepare: Prepare, epochs: float) -> None:
    ready = prepare(run__epochs=epochs, run__steps="null")
    an_epoch = ready.job.dataset.timeline.steps_of(0)
    assert an_epoch > 2
    assert ready.trainer.progress.last_step == math.floor(epochs) * an_epoch + math.ceil(epochs % 1 * an_epoch)
    assert len(list(ready.job.trainer.batches)) == ready.trainer.progress.last_step


# breaks if the run starts an epoch that it cannot complete
@pytest.mark.effect("run.whole_epochs")
def test_whole_epochs_stops_after_the_last_full_epoch(prepare: Prepare) -> None:
    an_epoch = prepare().job.dataset.timeline.steps_of(0)
    for steps, end in ((an_epoch, an_epoch), (2 * an_epoch + 1, 2 * an_epoch)):
        assert prepare(run__steps=steps, run__whole_epochs=True).trainer.progress.last_step == end
        assert prepare(run__steps=steps).trainer.progress.last_step == steps
    with pytest.raises(RecipeError, match=rf"write run\.steps={an_epoch} or more"):
        prepare(run__steps=an_epoch - 1, run__whole_epochs=True)


# breaks if no profile is written, other steps are profiled, or profiling changes results
@pytest.mark.effect("run.profile.steps", "run.profile.folder")
def test_profile_writes_a_trace_and_changes_nothing(prepare: Prepare, tmp_path: Path) -> None:
    plain = prepare(run__steps=3)
    plain.trainer.run()
    ready = prepare(run__steps=3, run__profile__steps=1)
    ready.trainer.run()
    trace = json.loads((ready.folder.logs / "profile" / "rank0.json").read_text())
    assert any("convolution" in str(event.get("name")) for event in trace["traceEvents"])
    for name, weight in plain.trainer.model.update.masters.items():
        assert torch.equal(weight, ready.trainer.model.update.masters[name])
    prepare(run__steps=3, run__profile__steps=1, run__profile__folder=tmp_path / "there").trainer.run()
    assert (tmp_path / "there" / "rank0.json").is_file()


# breaks if a GPU is used with `cpu`, not used with `auto`, or its absence is ignored
@pytest.mark.effect("run.device")
def test_device_selects_cpu_or_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    launch = Launch(local_rank=1, world_size=2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    results = {name: str(base.device_for(settings_of(device=name), launch)) for name in ("auto", "cpu", "cuda")}
    assert results == {"auto": "cuda:1", "cpu": "cpu", "cuda": "cuda:1"}
    assert chosen == [torch.device("cuda", 1)] * 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(base.device_for(settings_of(device="auto"), launch)) == "cpu"
    with pytest.raises(RecipeError, match=r"run\.device is cuda"):
        base.device_for(settings_of(device="cuda"), launch)


# breaks if the number does not reach torch
@pytest.mark.effect("run.threads")
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_is_the_number_of_threads(prepare: Prepare, threads: int) -> None:
    prepare(run__threads=threads)
    assert torch.get_num_threads() == threads


# breaks if nondeterministic kernels are allowed
@pytest.mark.effect("run.deterministic")
def test_deterministic_refuses_nondeterministic_kernels(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_rule() -> Tensor:
        return torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    prepare(run__deterministic=False)
    without_rule()
    ready = prepare(run__deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    with pytest.raises(RuntimeError, match="deterministic"):
        without_rule()
    assert math.isfinite(ready.step().report.loss), "only training has such kernels"


# --- precision ------------------------------------------------------------------------------------------------------


def dtypes_seen(ready: Any) -> tuple[torch.dtype, torch.dtype, Any]:
    """The dtypes of a convolution's weight and output, and the step."""
    conv = ready.family.parts()["denoiser"].conv_in
    seen: list[torch.dtype] = []
    hook = conv.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    step = ready.step()
    hook.remove()
    return conv.weight.dtype, seen[0], step


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


# breaks if autocast is missing or has another dtype, or the weights are rounded, too
@pytest.mark.effect("run.precision")
def test_precision_is_the_compute_dtype(prepare: Prepare) -> None:
    losses = {}
    for name, dtype in DTYPES.items():
        weights, computed, step = dtypes_seen(prepare(run__precision=name))
        assert (weights, computed) == (torch.float32, dtype)
        losses[name] = step.report.loss
    assert losses["bf16"] != losses["fp32"] != losses["fp16"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)
    assert losses["fp16"] == pytest.approx(losses["fp32"], rel=0.005)


# breaks if the weights of the forward pass stay float32, or the master weights do not
@pytest.mark.effect("run.weight_dtype")
def test_weight_dtype_is_the_dtype_of_the_forward_pass(prepare: Prepare) -> None:
    for kind, expected in (("fp32", torch.float32), ("same", torch.bfloat16)):
        ready = prepare(run__precision="bf16", run__weight_dtype=kind, optim__lr=1e-5)
        weights, computed, step = dtypes_seen(ready)
        assert (weights, computed) == (expected, torch.bfloat16)
        assert {t.dtype for t in ready.trainer.model.update.masters.values()} == {torch.float32}
        moved = step.moved("denoiser/conv_in.weight")
        assert 0 < float(moved.abs().max()) < 1.1e-5, "below the resolution of bfloat16: the master weight changes"


# breaks if sums are rounded to bf16 at each addition with fp32, or are not with `same`; they add the same gradients
@pytest.mark.effect("run.gradient_dtype")
def test_gradient_dtype_is_the_dtype_of_sums(prepare: Prepare) -> None:
    sums = {}
    for kind in ("fp32", "same"):
        small = {"run__precision": "bf16", "run__weight_dtype": "same", "run__micro_batch": 1}
        ready = prepare(run__gradient_dtype=kind, **small)
        weight = ready.trainer.model.trained["denoiser/conv_in.weight"]
        pieces: list[torch.Tensor] = []
        weight.register_hook(pieces.append)  # of each micro-batch, as computed by backward
        sums[kind] = ready.step().grads["denoiser/conv_in.weight"]
        assert len(pieces) == 3
        whole = torch.zeros_like(pieces[0], dtype=torch.float32 if kind == "fp32" else torch.bfloat16)
        for piece in pieces:
            whole += piece
        assert torch.equal(sums[kind], whole.float())
    assert not torch.equal(sums["fp32"], sums["same"])


@pytest.mark.slow
def test_auto_gradient_dtype_depends_on_memory_and_persists(
    prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"run__precision": "bf16", "run__weight_dtype": "same"}
    for free, kind in ((0, "same"), (1 << 50, "fp32")):
        monkeypatch.setattr(preparing, "free_device_memory", lambda *_, free=free: free)
        job = prepare(**small, run__folder=tmp_path / kind).job
        assert (job.resolved.gradient_sums, job.host.recorded["run.gradient_dtype"]) == (kind, kind)
        assert f"summed in {'float32' if free else 'bf16'}" in capsys.readouterr().out
        job.host.save(job.trainer)
        monkeypatch.setattr(preparing, "free_device_memory", lambda *_, free=free: (1 << 50) - free)
        assert prepare(**small, run__folder=tmp_path / kind).job.resolved.gradient_sums == kind


# breaks if frozen parts are not cast, or trained ones are
@pytest.mark.effect("run.frozen_dtype")
def test_frozen_dtype_is_the_dtype_of_frozen_parts(prepare: Prepare) -> None:
    for kind, expected in (("fp32", torch.float32), ("same", torch.bfloat16)):
        settings = {"data__cache__latents": False, "data__cache__text": False, "run__frozen_dtype": kind}
        parts = prepare(run__precision="bf16", **settings).family.parts()
        results = {part: {p.dtype for p in module.parameters()} for part, module in parts.items()}
        assert results == {"denoiser": {torch.float32}, "text_encoder": {expected}, "vae": {expected}}


@pytest.mark.skipif(find_spec("torchao") is None, reason="needs the extra low-bit")
@pytest.mark.parametrize(
    ("kind", "method"), [("int8", "lora"), pytest.param("int8", "dora", marks=pytest.mark.slow), ("nf4", "lora")]
)
def test_adapter_trains_on_a_quantized_base(prepare: Prepare, kind: str, method: str) -> None:
    ready = prepare(
        model__adapter__kind=method, run__frozen_dtype=kind, run__precision="bf16", optim__lr=1e-2,
        data__cache__text=False, run__gradient_checkpointing__enabled=True,
    )  # fmt: skip
    parts = ready.family.parts()
    for part in ("denoiser", "text_encoder"):
        assert any(isinstance(module, LowBitLinear) for module in parts[part].modules()), part
    frozen = {
        f"{part}/{name}": tensor.clone()
        for part, network in parts.items()
        for name, tensor in (*network.named_buffers(), *network.named_parameters())
        if not tensor.requires_grad
    }
    losses = [ready.step().report.loss for _ in range(2)]
    assert all(0 < loss < 10 for loss in losses)
    moved = ready.trainer.model.update.masters
    assert all(tensor.dtype == torch.float32 for tensor in moved.values())
    assert any(name.endswith("lora_up.weight") and tensor.abs().max() > 0 for name, tensor in moved.items())
    after = {
        f"{part}/{name}": tensor
        for part, network in parts.items()
        for name, tensor in (*network.named_buffers(), *network.named_parameters())
    }
    assert all(torch.equal(after[name], tensor) for name, tensor in frozen.items()), "the base weights do not change"


# breaks if the initial scale differs, or the scale does not grow after so many finite steps
@pytest.mark.effect("run.scaler.init", "run.scaler.growth_interval")
def test_scaler_starts_at_init_and_doubles_after_an_interval(prepare: Prepare) -> None:
    ready = prepare(run__precision="fp16", run__scaler__init=512, run__scaler__growth_interval=2)
    assert [ready.step().report.loss_scale for _ in range(3)] == [512, 512, 1024]
    other = prepare(run__precision="fp16", run__scaler__init=64, run__scaler__growth_interval=1)
    assert [other.step().report.loss_scale for _ in range(3)] == [64, 128, 256]
    assert prepare(run__precision="bf16", run__scaler__init=512).step().report.loss_scale == 1


# --- memory and speed -----------------------------------------------------------------------------------------------


# breaks if batches are not split, or split batches have other weights
@pytest.mark.effect("run.micro_batch")
def test_micro_batch_gives_the_same_result(prepare: Prepare) -> None:
    results = {}
    for size in ("null", 3, 1):
        ready = prepare(run__micro_batch=size, optim__ema__rule="none", data__remainder="drop")
        passes: list[int] = []
        ready.family.parts()["denoiser"].register_forward_pre_hook(
            lambda module, inputs, passes=passes: passes.append(len(inputs[0]))
        )
        results[size] = passes, ready.trainer.train_step(ready.next_batches()).result()
    assert [results[size][0] for size in ("null", 3, 1)] == [[4], [3, 1], [1, 1, 1, 1]]
    whole = results["null"][1]
    for size in (3, 1):
        report = results[size][1]
        assert (report.keys, report.timesteps) == (whole.keys, whole.timesteps)
        assert report.loss == pytest.approx(whole.loss, rel=1e-5)
        assert report.norm == pytest.approx(whole.norm, rel=1e-4)


def saved_bytes(ready: Any) -> tuple[int, Any]:
    """The bytes of activations that the forward pass stores for the backward pass, without parameters, and the step."""
    own = {p.untyped_storage().data_ptr() for p in ready.family.parts()["denoiser"].parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in own:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step = ready.step()
    return sum(kept.values()), step


def bytes_of(network: nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*network.parameters(), *network.buffers()))


# breaks if blocks stay on the device, or offloading changes a bit
@pytest.mark.effect("run.offload.blocks")
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"run__precision": "bf16", "run__weight_dtype": "same", "run__gradient_checkpointing__enabled": True},
            marks=pytest.mark.slow,
        ),
        {"optim__in_backward": True, "optim__clip__norm": None},
        {"model__adapter__kind": "lora", "run__precision": "bf16", "run__frozen_dtype": "int8"},
    ],
    ids=["masters", "in-backward", "adapter"],
)
def test_offloaded_blocks_train_bitwise_the_same(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    if "model__adapter__kind" in settings:
        pytest.importorskip("peft")
        pytest.importorskip("torchao")
    taken: list[Offload] = []
    take = Offload.take
    monkeypatch.setattr(Offload, "take", lambda self, *given: (taken.append(self), take(self, *given))[1])

    sizes: list[int] = []

    def ended(**more: Any) -> dict[str, Tensor]:
        ready = prepare(run__steps=2, **settings, **more)
        sizes[:] = sizes or [sum(map(bytes_of, block)) for block in ready.family.blocks()]
        for batches in ready.job.trainer.batches:
            ready.job.trainer.train_step(batches)
        return {name: tensor.clone() for name, tensor in ready.job.trainer.tensors().items()}

    plain = ended()
    assert not taken
    away = ended(run__offload__blocks=1)
    assert plain.keys() == away.keys()
    assert all(torch.equal(plain[name], away[name]) for name in plain)
    [offload] = taken
    assert offload.bytes_on_device() <= max(sizes) < sum(sizes)


# breaks if blocks keep their activations, exempt ones do not, or recomputing changes gradients
@pytest.mark.effect(
    "run.gradient_checkpointing.enabled",
    "run.gradient_checkpointing.skip_first",
    "run.gradient_checkpointing.skip_last",
)
def test_checkpointing_saves_memory_with_equal_gradients(prepare: Prepare) -> None:
    plain = prepare()
    blocks = len(list(plain.family.blocks()))
    whole, expected = saved_bytes(plain)
    sizes = {}
    for exempt in (0, blocks // 2):
        ready = prepare(run__gradient_checkpointing__enabled=True, run__gradient_checkpointing__skip_first=exempt)
        assert ready.job.model.recomputed_blocks == blocks - exempt
        sizes[exempt], step = saved_bytes(ready)
        assert all(torch.equal(grad, expected.grads[name]) for name, grad in step.grads.items())
    assert sizes[0] < sizes[blocks // 2] < whole
    assert sizes[0] < whole / 3
    ready = prepare(
        run__gradient_checkpointing__enabled=True,
        run__gradient_checkpointing__skip_first=1,
        run__gradient_checkpointing__skip_last=1,
    )
    assert ready.job.model.recomputed_blocks == blocks - 2
    first, *_, last = [block[0] for block in ready.family.blocks()]
    assert [getattr(b.forward, "__name__", "") for b in (first, last)] == ["forward", "forward"]


# breaks if the compiled code is not executed, or more than the blocks is compiled; the compiler is simulated
@pytest.mark.effect("run.compile")
def test_compile_runs_every_block_compiled(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    calls: list[Any] = []

    def stand_in(call: Any, **options: Any) -> Any:
        compiled.append(call.__self__)

        def run(*inputs: Any, **named: Any) -> Any:
            calls.append(call.__self__)
            return call(*inputs, **named)

        return run

    monkeypatch.setattr(torch, "compile", stand_in)
    expected = prepare(run__compile=False).step().report
    assert compiled == []
    ready = prepare(run__compile=True, run__kernels__pad_batches=False)
    modules = [module for block in ready.family.blocks() for module in block]
    assert compiled == modules
    assert ready.job.model.compiled_blocks == len(modules)
    report = ready.step().report
    assert {id(module) for module in calls} == {id(module) for module in modules}
    assert report.loss == expected.loss


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, data: Tensor) -> Tensor:
        return torch.tanh(self.inner(data)) * 2


# breaks if torch's limit of 8 compiled versions of a code object, shared by all blocks of a class, applies
@pytest.mark.slow
@pytest.mark.effect("run.compile")
def test_compile_leaves_no_block_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []
    monkeypatch.setattr(
        torch, "compile", functools.partial(torch.compile, backend=lambda graph, _: graphs.append(graph) or graph)
    )
    torch.compiler.reset()
    blocks = [Block(width) for width in range(1, 11)]
    assert base.compile_blocks([(block,) for block in blocks], settings_of(compile=True)) == 10
    with torch.no_grad():
        for block in blocks:
            block(torch.zeros(1, block.inner.in_features))
    torch.compiler.reset()
    assert len(graphs) == 10


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_block_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config, "compile_threads", 1)  # no pool of processes that import torch
    block, data = Block(), torch.linspace(-1, 1, 8).reshape(2, 4)
    expected = block(data).detach()
    assert base.compile_blocks([(block,)], settings_of(compile=True)) == 1
    result = block(data)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    assert block.inner.weight.grad is not None


# --- processes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Process groups that would have been opened."""
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", dist.HashStore)
    monkeypatch.setattr(
        dist, "init_process_group", lambda backend, **options: opened.append({"backend": backend} | options)
    )
    return opened


# breaks if the runtime depends only on the launch, or only on the recipe
@pytest.mark.effect("run.runtime")
def test_runtime_follows_recipe_and_launch(groups: list[dict[str, Any]]) -> None:
    alone, pair = Launch(), Launch(rank=1, local_rank=1, world_size=2, launcher="torchrun")

    def opened(kind: str, launch: Launch) -> Any:
        return type(base.open_runtime(settings_of(runtime=kind, device="cpu"), launch))

    assert opened("single", alone) is opened("auto", alone) is single.Runtime
    assert groups == []
    assert opened("ddp", pair) is opened("auto", pair) is ddp.Runtime
    assert [group["backend"] for group in groups] == ["gloo", "gloo"]
    with pytest.raises(RecipeError, match="no launcher started this process"):
        opened("ddp", alone)
    with pytest.raises(RecipeError, match=r"run\.runtime is single"):
        opened("single", pair)


# breaks if the group has another timeout
@pytest.mark.effect("run.timeout_seconds")
def test_timeout_seconds_reaches_the_process_group(groups: list[dict[str, Any]]) -> None:
    pair = Launch(world_size=2, launcher="torchrun")
    for seconds in (7, 1234):
        base.open_runtime(settings_of(runtime="ddp", device="cpu", timeout_seconds=seconds), pair)
    assert [group["timeout"] for group in groups] == [datetime.timedelta(seconds=s) for s in (7, 1234)]


# breaks if training always waits for a checkpoint, or does not wait when it must
@pytest.mark.effect("run.save.asynchronous")
@pytest.mark.parametrize("behind", [True, False])
def test_asynchronous_save_does_not_block_training(
    behind: bool, prepare: Prepare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = prepare(run__folder=tmp_path / "run", run__save__asynchronous=behind)
    host, main, goes_on = ready.trainer.host, threading.current_thread(), threading.Event()

    def wait_there(point: str) -> None:
        if threading.current_thread() is not main:
            assert goes_on.wait(30)

    monkeypatch.setattr(fault_injection, "reach", wait_there)
    host.save(ready.trainer, at_once=False)
    assert host.is_saving() == behind
    before = {name: tensor.clone() for name, tensor in ready.trainer.tensors().items()}
    ready.step()
    checkpoints = tmp_path / "run" / "checkpoints"
    assert [path.name for path in state.list_checkpoints(checkpoints)] == ([] if behind else ["step-00000000"])
    goes_on.set()
    host.end_save()
    kept = state.read(checkpoints / "step-00000000").tensors
    assert all(torch.equal(tensor, kept[name]) for name, tensor in before.items())


# breaks if one process writes what several processes store, or all of them write what one should
@pytest.mark.effect("run.save.sharded")
def test_sharded_save_needs_a_shared_folder(tmp_path: Path) -> None:
    class Two(base.Runtime):
        world_size = 2

        def agree(self, flags: int) -> int:
            return flags | blind

    for parts, blind, is_of_all in ((True, 0, True), (True, 1, False), (False, 0, False)):
        said: list[str] = []
        run = settings_of(save={"sharded": parts})
        runtime = Two(torch.device("cpu"), Launch(), run)
        assert Saves(tmp_path / "checkpoints", runtime, run, said.append).is_of_all == is_of_all
        assert bool(said) == bool(blind)


# --- resuming -------------------------------------------------------------------------------------------------------


LEFT = {"run__steps": 3, "run__save__every": 1, "run__save__keep": 9}


@pytest.fixture(scope="module")
def left(shared_world: Any) -> Path:
    """A run of three steps with a checkpoint of each."""
    assert shared_world.train("left", data__cache__latents=True, data__cache__text=True, **LEFT) == 0
    return Path(shared_world.root / "left")


# breaks if one way to resume is used for another
@pytest.mark.effect("run.resume")
def test_resume_selects_the_first_step(prepare: Prepare, left: Path, tmp_path: Path) -> None:
    assert prepare(run__folder=left, run__resume="latest", **LEFT).trainer.progress.step == 3
    with pytest.raises(CheckpointError, match=r"run\.resume is never"):
        prepare(run__folder=left, run__resume="never", **LEFT)
    new = tmp_path / "new"
    with pytest.raises(CheckpointError, match=r"run\.resume is latest"):
        prepare(run__folder=new, run__resume="latest", **LEFT)
    assert prepare(run__folder=new, run__resume="never", **LEFT).trainer.progress.step == 0
    second = left / "checkpoints" / "step-00000002"
    ready = prepare(run__folder=tmp_path / "branch", run__resume=second, **LEFT)
    assert ready.trainer.progress.step == 2
    kept = state.read(second).tensors
    assert all(torch.equal(tensor, kept[name]) for name, tensor in ready.trainer.tensors().items())
    assert (
        resume.choose(str(left), RunFolder(tmp_path / "other"), "mezzotint train").checkpoint
        == left / "checkpoints" / "step-00000003"
    )


# breaks if a change is allowed without being named, or refused although it is
@pytest.mark.effect("run.allow_change")
def test_allow_change_permits_a_changed_setting(prepare: Prepare, left: Path, tmp_path: Path) -> None:
    settings = {"run__steps": 3, "run__resume": left / "checkpoints" / "step-00000002", "optim__lr": 5e-3}
    for allowed in ([], ["optim.optimizer"]):
        with pytest.raises(RecipeError, match=r"optim\.lr") as raised:
            prepare(run__folder=tmp_path / "refused", run__allow_change=allowed, **settings)
        assert raised.value.problems[0].code == "E1510"
    ready = prepare(run__folder=tmp_path / "new", run__allow_change=["optim.lr"], **settings)
    assert ready.step().report.rates == {"denoiser": 5e-3}
    changes = [event["changes"] for event in ready.folder.events() if event["event"] == "resumed"]
    assert len(changes) == 1
    assert any("optim.lr: 0.001 → 0.005" in sentence for sentence in changes[0])


# breaks if another number of bad steps ends the run, or they need not be consecutive
@pytest.mark.effect("run.max_nonfinite_steps")
@pytest.mark.parametrize("allowed", [0, 2])
def test_max_nonfinite_steps_counts_skipped_steps(prepare: Prepare, allowed: int) -> None:
    ready = prepare(run__max_nonfinite_steps=allowed)
    ready.trainer.model.update.masters["denoiser/conv_in.weight"].fill_(float("nan"))
    with pytest.raises(Diverged):
        ready.trainer.run()
    assert len(ready.folder.bad_steps.read_text().splitlines()) == allowed + 1
    assert ready.trainer.progress.bad_in_a_row == allowed + 1


# breaks if TF32 keeps the library's default, or the deprecated names are set
@pytest.mark.effect("run.tf32")
def test_tf32_sets_fp32_precision() -> None:
    for allowed, word in ((True, "tf32"), (False, "ieee")):
        base.open_runtime(settings_of(tf32=allowed, device="cpu"), Launch())
        assert torch.backends.cuda.matmul.fp32_precision == word
        assert torch.backends.cudnn.conv.fp32_precision == word


# breaks if the run does not continue beyond the length of its recipe
@pytest.mark.effect("run.extend")
def test_extend_adds_to_the_recipes_length(prepare: Prepare) -> None:
    assert prepare(run__steps=3).job.resolved.steps == 3
    assert prepare(run__steps=3, run__extend="2 steps").job.resolved.steps == 5
    epoch = prepare(run__steps="null", run__epochs=1).job.resolved.steps
    assert prepare(run__steps="null", run__epochs=1, run__extend="2 epochs").job.resolved.steps == 3 * epoch
    halves = prepare(run__steps="null", run__epochs=1.5, run__extend="1 epoch").job.resolved.steps
    assert halves == math.ceil(2.5 * epoch) > 2 * epoch, "a part of an epoch is rounded up to a whole step, once"
    assert prepare(run__steps=3, run__extend="1 epoch").job.resolved.steps == 3 + epoch
