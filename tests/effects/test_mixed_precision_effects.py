"""Rows of dtypes: modules that compute in the smaller one, the VAE, a static loss scale; of the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mezzotint.runtimes import base
from mezzotint.runtimes.base import Launch
from mezzotint.settings.reading.read import read_text
from support.installed import names_of_trainers

Prepare = Callable[..., Any]
F32, B16 = torch.float32, torch.bfloat16


KINDS = {"convolution": nn.Conv2d, "linear": nn.Linear, "group norm": nn.GroupNorm, "layer norm": nn.LayerNorm,
         "SiLU": nn.SiLU}  # fmt: skip


def types_in(network: nn.Module, run: Any) -> dict[str, frozenset[torch.dtype]]:
    """The output dtypes of modules, by kind. run: runs a step, or calls the network."""
    results: dict[str, set[torch.dtype]] = {}

    def keep(kind: str) -> Callable[..., None]:
        return lambda module, inputs, output: results.setdefault(kind, set()).add(output.dtype)

    hooks = [
        module.register_forward_hook(keep(kind))
        for module in network.modules()
        for kind, type_ in KINDS.items()
        if isinstance(module, type_)
    ]
    run.step() if hasattr(run, "step") else run()
    for hook in hooks:
        hook.remove()
    return {kind: frozenset(types) for kind, types in results.items()}


def spy(patch: pytest.MonkeyPatch) -> dict[str, set[torch.dtype]]:
    """The dtypes of the arguments of functions, by name."""
    types: dict[str, set[torch.dtype]] = {}
    for name in ("group_norm", "layer_norm", "silu", "scaled_dot_product_attention"):
        plain = getattr(nn.functional, name)

        def call(x: Tensor, *inputs: Any, name: str = name, plain: Any = plain, **named: Any) -> Tensor:
            types.setdefault(name, set()).add(x.dtype)
            result: Tensor = plain(x, *inputs, **named)
            return result

        patch.setattr(nn.functional, name, call)
    return types


# breaks if a level includes other modules, or they compute in or return another dtype
@pytest.mark.effect("run.half_precision")
def test_half_precision_selects_modules_in_bf16(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    # by kind: the output dtype, and the dtype in which norms and SiLU compute
    expected = {"matmuls": (F32, F32), "most": (B16, F32), "all": (B16, B16)}
    losses = {}
    for level, (handed_on, inside) in expected.items():
        ready = prepare(run__precision="bf16", run__half_precision=level)
        with monkeypatch.context() as patch:
            computed = spy(patch)
            types = types_in(ready.family.parts()["denoiser"], ready)
        losses[level] = ready.step().report.loss
        assert types == dict.fromkeys(
            ("convolution", "linear", "group norm", "layer norm", "SiLU"), frozenset({handed_on})
        )
        assert computed["group_norm"] == computed["layer_norm"] == {inside}
        assert computed["silu"] == {inside}
        assert computed["scaled_dot_product_attention"] == {F32 if level == "matmuls" else B16}, "before autocast"
        assert {t.dtype for t in ready.trainer.model.update.masters.values()} == {F32}
    assert losses["matmuls"] != losses["most"]
    assert max(losses.values()) == pytest.approx(min(losses.values()), rel=0.03)
    plain, in_half = (prepare(run__half_precision=level).step().report.loss for level in ("autocast", "all"))
    assert plain == in_half, "nothing is in half precision"


# breaks if the VAE uses the dtype of the other frozen parts, or the denoiser computes in the VAE's
@pytest.mark.effect("run.vae_dtype")
def test_vae_dtype_applies_only_to_the_vae(prepare: Prepare) -> None:
    settings = {"data__cache__latents": False, "data__cache__text": False, "run__precision": "bf16"}
    for frozen, vae, expected in (("same", "fp32", F32), ("fp32", "same", B16), ("same", "null", B16)):
        ready = prepare(run__frozen_dtype=frozen, run__vae_dtype=vae, **settings)
        parts = ready.family.parts()
        results = {part: next(parts[part].parameters()).dtype for part in ("vae", "text_encoder")}
        assert results == {"vae": expected, "text_encoder": B16 if frozen == "same" else F32}
        with torch.autocast("cpu", dtype=B16):
            types = types_in(parts["vae"], lambda ready=ready: ready.family.encode_media(torch.zeros(1, 3, 16, 16)))
        assert types["convolution"] == {expected}
    log = (ready.folder.path / "run.log").read_text()
    assert "frozen bf16" in log
    mixed = prepare(run__frozen_dtype="same", run__vae_dtype="fp32", **settings)
    assert "frozen bf16, VAE fp32" in (mixed.job.start.folder.path / "run.log").read_text()


# breaks if a static scale grows, or shrinks when gradients overflow
@pytest.mark.effect("run.scaler.kind")
def test_static_loss_scale_is_constant(prepare: Prepare) -> None:
    settings = {"run__precision": "fp16", "run__scaler__init": 1024, "run__scaler__growth_interval": 1}
    ready = prepare(run__scaler__kind="static", **settings)
    assert [ready.step().report.loss_scale for _ in range(2)] == [1024] * 2
    ready.trainer.model.scale.update(torch.ones(()), 3)
    assert float(ready.trainer.model.scale.scale) == 1024
    dynamic = prepare(run__scaler__kind="dynamic", **settings)
    assert [dynamic.step().report.loss_scale for _ in range(2)] == [1024, 2048]


# breaks if the number has another unit, does not reach the allocator, or the CPU gets no note
@pytest.mark.effect("run.memory_limit")
def test_memory_limit_caps_gpu_memory(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    read = {"59GB": 59e9, "48 GiB": 48 * 2**30, "1.5GB": 1.5e9, "512MiB": 2**29, "700MB": 7e8}
    assert {text: base.bytes_of(text) for text in read} == read
    capped: list[tuple[float, torch.device]] = []

    class Card:
        total_memory = 80 * 10**9

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card())
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: capped.append((share, device))
    )
    for text in ("59GB", "100GB", "null"):
        recipe = read_text("schema: 1", overrides=[f"run.memory_limit={text}", "run.device=cuda"]).recipe
        base.device_for(recipe.run, Launch())
    card = torch.device("cuda", 0)
    assert capped == [(pytest.approx(59 / 80), card), (1.0, card)]
    monkeypatch.undo()
    ready = prepare(run__memory_limit="59GB")
    assert "run.memory_limit=59GB limits GPU memory" in (ready.folder.path / "run.log").read_text()


def test_norms_with_bf16_weights_compute_in_float32(prepare: Prepare) -> None:
    """With weights stored in the smaller dtype, `most` still computes norms in float32."""
    settings = {"run__precision": "bf16", "run__half_precision": "most", "run__weight_dtype": "same"}
    ready = prepare(**settings)
    norm = next(m for m in ready.family.parts()["denoiser"].modules() if isinstance(m, nn.GroupNorm))
    assert norm.weight.dtype == B16
    x = torch.randn(2, norm.num_channels, 4, 4, generator=torch.Generator().manual_seed(0))
    exact = nn.functional.group_norm(x, norm.num_groups, norm.weight.float(), norm.bias.float(), norm.eps)
    result: Tensor = norm(x)
    assert torch.equal(result, exact.to(B16))


# breaks if masters are kept, moments are float32, or the average uses the smaller dtype
@pytest.mark.slow
@pytest.mark.effect("run.weight_dtype")
@pytest.mark.parametrize("kind", ["adamw", "adafactor", *names_of_trainers("settings/optimizers")])
def test_pure_weights_have_no_masters(prepare: Prepare, kind: str) -> None:
    settings = {"run__precision": "bf16", "run__weight_dtype": "pure", "optim__optimizer__kind": kind}
    ready = prepare(optim__lr=1e-2, **settings)
    trainer, weight = ready.trainer, ready.family.parts()["denoiser"].conv_in.weight
    assert weight.dtype == B16
    assert trainer.model.update.masters["denoiser/conv_in.weight"].data_ptr() == weight.data_ptr()
    step = ready.step()
    assert step.report.applied
    assert weight.dtype == B16
    assert step.largest("denoiser") > 1e-5
    assert {
        t.dtype for name, t in trainer.model.update.tensors().items() if name.startswith(("opt.mean/", "opt.square/"))
    } <= {B16}
    assert {t.dtype for t in trainer.model.update.ema.weights.values()} == {F32}
    trainer.host.save(trainer)
    again = prepare(optim__lr=1e-2, **settings)
    again.trainer.model.update.load(trainer.model.update.tensors())
    assert torch.equal(again.family.parts()["denoiser"].conv_in.weight, weight)
    if kind == "adamw":
        lost = prepare(optim__lr=1e-6, **settings).step()
        large = lost.before["denoiser/conv_in.weight"].abs() > 0.01
        assert not lost.moved("denoiser/conv_in.weight")[large].any(), "less than the last bit"
    assert "no masters" in (ready.folder.path / "run.log").read_text()
