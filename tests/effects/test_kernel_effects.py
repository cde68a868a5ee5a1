"""Rows of the section `run.kernels`: choices for GPUs, as far as a CPU can test them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from mezzotint.runtimes import base
from mezzotint.runtimes.base import Launch
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.run import RunSettings

Prepare = Callable[..., Any]

HALF: dict[str, Any] = {"run__precision": "bf16"}


def settings_of(**settings: Any) -> RunSettings:
    words = [f"run.{name.replace('__', '.')}={value}" for name, value in settings.items()]
    return read_text("schema: 1", overrides=words).recipe.run


def are_channels_last(module: torch.nn.Module) -> set[bool]:
    weights = [p for p in module.parameters() if p.ndim == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    return {p.is_contiguous(memory_format=torch.channels_last) for p in weights}


# breaks if weights keep their memory layout, or a resumed run has other bits than an uninterrupted one
@pytest.mark.effect("run.kernels.channels_last")
def test_channels_last_sets_memory_format_of_convolutions(prepare: Prepare) -> None:
    plain = prepare(**HALF, optim__ema__rule="ramp")
    ready = prepare(**HALF, run__kernels__channels_last=True, optim__ema__rule="ramp")
    parts = [{part: are_channels_last(m) for part, m in one.family.parts().items()} for one in (plain, ready)]
    assert all(kinds == {False} for kinds in parts[0].values() if kinds), "on a CPU the default changes nothing"
    assert all(kinds == {True} for kinds in parts[1].values() if kinds)
    losses = [one.step().report.loss for one in (plain, ready)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)
    ready.trainer.progress.step = 1
    ready.job.host.save(ready.trainer)
    again = prepare(**HALF, run__kernels__channels_last=True, optim__ema__rule="ramp", run__folder=ready.folder.path)
    kept, saved = again.trainer.tensors(), ready.trainer.tensors()
    assert all(torch.equal(tensor, kept[name]) for name, tensor in saved.items())
    assert again.step().report.loss == ready.step().report.loss


def test_channels_last_is_the_default_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def lies(device: str, **settings: Any) -> bool:
        network = torch.nn.Conv2d(4, 8, 3)
        base.set_memory_format([network, torch.nn.Conv3d(2, 2, 3)], settings_of(**settings), torch.device(device))
        return network.weight.is_contiguous(memory_format=torch.channels_last)

    assert lies("cuda", precision="bf16", compile=True)
    assert not lies("cpu", precision="bf16", compile=True)
    assert not lies("cuda", precision="bf16"), "torch's group norm would change the layout of each image"
    assert not lies("cuda", compile=True)
    assert not lies("cuda", precision="bf16", compile=True, runtime="fsdp")
    assert lies("cpu", kernels__channels_last=True)


# breaks if kernels are selected by their speed although the run must be reproducible
@pytest.mark.effect("run.kernels.cudnn_benchmark", "run.tf32")
def test_cudnn_benchmark_and_tf32_follow_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(**settings: Any) -> tuple[bool, str]:
        base.open_runtime(settings_of(device="cpu", **settings), Launch())
        return torch.backends.cudnn.benchmark, torch.backends.cuda.matmul.fp32_precision

    assert opened(precision="bf16") == opened(precision="fp16") == (True, "tf32")
    assert opened() == (False, "ieee")
    assert opened(precision="bf16", kernels__cudnn_benchmark=False, tf32=False) == (False, "ieee")
    assert opened(kernels__cudnn_benchmark=True, tf32=True) == (True, "tf32")
    assert opened(precision="bf16", deterministic=True) == (False, "tf32")


def test_deterministic_run_does_not_benchmark_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config, "deterministic", False)
    base.compile_blocks([], settings_of(compile=True))
    assert not config.deterministic
    base.compile_blocks([], settings_of(compile=True, deterministic=True))
    assert config.deterministic


# breaks if padding samples count in the loss, the report or the gradients, or short batches keep their shape
@pytest.mark.effect("run.kernels.pad_batches")
def test_padded_batches_have_one_shape_and_equal_results(prepare: Prepare) -> None:
    """Six images in batches of four: the second is short."""
    settings = {"data__batch_size": 4, "run__micro_batch": 3, "data__remainder": "short"}
    sizes: dict[bool, list[int]] = {True: [], False: []}
    steps = {}
    for whole in (False, True):
        ready = prepare(run__kernels__pad_batches=whole, **settings)
        hook = functools.partial(lambda seen, m, inputs: seen.append(len(inputs[0])), sizes[whole])
        ready.family.parts()["denoiser"].conv_in.register_forward_pre_hook(hook)
        steps[whole] = [ready.step() for _ in range(2)]
    assert set(sizes[True]) == {3}
    assert set(sizes[False]) > {3}
    for plain, full in zip(steps[False], steps[True], strict=True):
        assert full.report.keys == plain.report.keys
        assert full.report.timesteps == plain.report.timesteps
        assert full.report.losses == pytest.approx(plain.report.losses, rel=1e-4)
        assert full.report.loss == pytest.approx(plain.report.loss, rel=1e-4)
        for name, grad in plain.grads.items():
            torch.testing.assert_close(full.grads[name], grad, rtol=1e-3, atol=1e-5)


# breaks if short batches are compiled again after every bucket has occurred
@pytest.mark.slow
@pytest.mark.effect("run.kernels.pad_batches")
def test_each_bucket_is_compiled_once(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """One block, traced and guarded as usual but run without a C++ compiler; three buckets with four, three and three
    images, each used once in each of two epochs."""
    graphs: list[Any] = []
    monkeypatch.setattr(
        torch, "compile", functools.partial(torch.compile, backend=lambda graph, _: graphs.append(graph) or graph)
    )
    compile_blocks = base.compile_blocks
    monkeypatch.setattr("mezzotint.tasks.assemble.compile_blocks", lambda b, s: compile_blocks(b[1:2], s))
    torch.compiler.reset()
    ready = prepare(data__batch_size=3, run__compile=True, data__remainder="short")
    first: dict[str, int] = {}
    later = []
    for _ in range(6):
        graphs.clear()
        [batch] = ready.step().batches.batches
        bucket = str(batch.target_size[0].tolist())
        if bucket in first:
            later.append(len(graphs))
        else:
            first[bucket] = len(graphs)
    torch.compiler.reset()
    new = [*first.values()]
    assert new[0] > 0
    assert (new, later) == ([new[0]] * 3, [0] * 3)


# breaks if compiled blocks are not CUDA graphs, or a step starts without marking it
@pytest.mark.effect("run.kernels.cuda_graphs")
def test_cuda_graphs_record_compiled_blocks(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda call, mode=None, **options: modes.append(mode) or call)
    ready = prepare(run__compile=True, run__kernels__cuda_graphs=True)
    assert {*modes} == {"reduce-overhead"}
    assert not ready.job.model.records_graphs, "a CPU has none"
    modes.clear()
    prepare(run__compile=True)
    assert {*modes} == {None}

    marks: list[int] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: marks.append(1))
    ready.step()
    assert not marks
    object.__setattr__(ready.trainer.model, "records_graphs", True)
    ready.step()
    assert marks == [1], "once per step, however many micro-batches it has"


# breaks if GPU memory is allocated in another way than requested, or the setting overrides the environment
@pytest.mark.effect("run.kernels.allocator")
def test_allocator_is_set_unless_the_environment_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)

    def said(environment: dict[str, str], **settings: Any) -> str | None:
        with monkeypatch.context() as patch:
            for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(os, "environ", dict(os.environ))
            base.device_for(settings_of(**settings), Launch())
            return os.environ.get("PYTORCH_CUDA_ALLOC_CONF")

    assert said({}) == "expandable_segments:True"
    assert said({}, kernels__allocator="torch") is None
    assert said({"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}) == "backend:native"
    assert said({"PYTORCH_ALLOC_CONF": "backend:native"}) is None
    assert said({}, device="cpu") is None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_gradients_are_within_one_percent(prepare: Prepare, precision: str) -> None:
    """Frozen encoders in the smaller type too, from pixels on. In length and direction; in fp16, whose three more bits
    allow it, number by number as well."""
    uncached = {"data__cache__latents": False, "data__cache__text": False}
    grads = {}
    for kind in ("fp32", precision):
        ready = prepare(
            run__precision=kind, run__scaler__init=256, run__kernels__channels_last=kind != "fp32", **uncached
        )
        step = ready.step()
        scale = step.report.loss_scale
        grads[kind] = torch.cat([step.grads[name].flatten() / scale for name in sorted(step.grads)])
    exact, mine = grads["fp32"], grads[precision]
    assert float(mine.norm() / exact.norm()) == pytest.approx(1.0, abs=1e-2)
    assert float(torch.nn.functional.cosine_similarity(mine, exact, dim=0)) > 0.99
    if precision == "fp16":
        assert float((mine - exact).norm() / exact.norm()) < 1e-2
    else:
        assert float((mine - exact).norm() / exact.norm()) < 5e-2
