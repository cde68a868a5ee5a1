"""Frozen weights quantized to 8 or 4 bits: close to the matrix, small, deterministic, unchanged by casts."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights import low_bit
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder import components, state
from mezzotint.weights.folder.model_folder import shipped_folder
from mezzotint.weights.low_bit import LowBit, LowBitLinear, WeightForm

KINDS: tuple[LowBit, ...] = ("int8", "nf4")
has_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs the extra low-bit")
SHARE = {"int8": 0.501 / 127, "nf4": 0.16}
"""The largest rounding error, relative to the maximum of the values that share a scale: half of 1/127; in NF4 half of
the widest gap between two of its 16 values (−1 and −0.696), and the error of the 8-bit scale."""


def linear(low: LowBit) -> tuple[nn.Linear, LowBitLinear]:
    """A layer, and the same layer quantized."""
    plain = nn.Linear(128, 96).requires_grad_(False)
    with torch.no_grad():
        plain.weight.copy_(torch.randn(96, 128, generator=torch.Generator().manual_seed(0)))
    net = low_bit.convert_network(nn.Sequential(copy.deepcopy(plain)), WeightForm(torch.float32, low))
    layer = net[0]  # type: ignore[index]
    assert isinstance(layer, LowBitLinear)
    return plain, layer


@has_torchao
@pytest.mark.parametrize("low", KINDS)
def test_matrix_product_and_gradient_are_close(low: LowBit) -> None:
    plain, layer = linear(low)
    groups = plain.weight.reshape(96, 1, 128) if low == "int8" else plain.weight.reshape(96, 2, 64)
    bound = SHARE[low] * groups.abs().amax(dim=2, keepdim=True).expand_as(groups).reshape(96, 128)
    assert ((layer.weight - plain.weight).abs() <= bound).all()
    x = torch.randn(5, 128, generator=torch.Generator().manual_seed(1))
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours, exact = layer(mine), plain(theirs)
    # each product moves by no more than its matrix does
    assert ((ours - exact).abs() <= x.abs() @ bound.T + 1e-4).all()
    assert not torch.equal(ours, exact)
    ours.sum().backward()
    exact.sum().backward()
    assert mine.grad is not None
    assert theirs.grad is not None
    assert ((mine.grad - theirs.grad).abs() <= bound.sum(dim=0) + 1e-4).all()


@has_torchao
@pytest.mark.parametrize(("low", "each"), [("int8", 1.0), ("nf4", 0.5)])
def test_quantized_size_is_small_and_equal_on_the_meta_device(low: LowBit, each: float) -> None:
    _, layer = linear(low)
    small = dict(layer.named_buffers())
    size = sum(t.nbytes for t in small.values())
    assert each * 96 * 128 < size < (each + 0.1) * 96 * 128
    assert all(torch.equal(t, small[name]) for name, t in linear(low)[1].named_buffers())
    empty = state.build_on_meta(lambda: nn.Sequential(nn.Linear(128, 96))).requires_grad_(False)
    counted = dict(low_bit.convert_network(empty, WeightForm(torch.bfloat16, low))[0].named_buffers())  # type: ignore[index]
    assert {n: (t.shape, t.dtype) for n, t in counted.items()} == {n: (t.shape, t.dtype) for n, t in small.items()}
    assert low_bit.numbers_of(empty) == 96 * 128 + 96


@has_torchao
@pytest.mark.parametrize("low", KINDS)
def test_cast_keeps_the_quantized_matrix_and_autocast_applies(low: LowBit) -> None:
    _, layer = linear(low)
    before = layer.weight
    layer.to(torch.bfloat16)
    assert torch.equal(layer.weight, before)
    assert layer.bias.dtype == torch.bfloat16
    assert not layer.state_dict().keys() - {"bias"}, "quantized weights are in no checkpoint"
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.ones(1, 128)).dtype == torch.bfloat16
    assert layer(torch.ones(1, 128)).dtype == torch.float32


@has_torchao
def test_unsuitable_layers_are_not_quantized() -> None:
    net = low_bit.convert_network(
        nn.Sequential(nn.Linear(10, 3), nn.Conv2d(2, 2, 3)), WeightForm(torch.bfloat16, "nf4")
    )
    assert [type(module) for module in net.children()] == [nn.Linear, nn.Conv2d]
    assert {p.dtype for p in net.parameters()} == {torch.bfloat16}


class Counted:
    """Stored tensors that record how many bytes each read returns."""

    def __init__(self, stored: Any) -> None:
        self.path: Path = stored.path
        self.header, self._read = stored.header, stored.read
        self.sizes: list[int] = []

    def read(self, names: Any) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = self._read(names)
        self.sizes.append(sum(t.nbytes for t in tensors.values()))
        return tensors


@has_torchao
@pytest.mark.parametrize("low", [None, "nf4"])
def test_stored_weights_are_converted_a_few_at_a_time(low: LowBit | None, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Family.files.of(ModelSettings(path=shipped_folder("mezzotint-mini")))
    stored = Counted(components.tensor_files.InFile(files.weights_of("denoiser").path))
    monkeypatch.setattr(tensor_files, "AT_ONCE", 200_000)
    config, where, form = files.configs["denoiser"], files.where("denoiser"), WeightForm(torch.bfloat16, low)
    network = components.load("unet", config, stored, form, where=where)  # type: ignore[arg-type]
    largest = max(info.shape[0] * 4 * max(1, torch.Size(info.shape[1:]).numel()) for info in stored.header().values())
    assert len(stored.sizes) > 5
    assert max(stored.sizes) <= max(200_000, largest)
    whole = files.network("denoiser")
    layers = {n: m for n, m in network.named_modules() if isinstance(m, LowBitLinear)}
    assert bool(layers) == (low is not None)
    for name, parameter in whole.named_parameters():
        path = name.removesuffix(".weight")
        if path in layers:
            again = low_bit.convert_network(nn.Sequential(whole.get_submodule(path)), WeightForm(torch.float32, low))
            assert torch.equal(layers[path].weight, again[0].weight)  # type: ignore[index]
        else:
            assert torch.equal(network.get_parameter(name), parameter.bfloat16()), name


@has_torchao
@pytest.mark.parametrize("low", KINDS)
def test_piecewise_quantization_equals_torchao(low: LowBit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_bit, "_AT_ONCE", 64 * 5)
    plain, layer = linear(low)
    import torchao.quantization as torchao

    if low == "int8":
        whole = torchao.Int8Tensor.from_hp(plain.weight, granularity=torchao.PerRow())
    else:
        whole = torchao.to_nf4(plain.weight, 64, 64)
    quantized = dict(layer.named_buffers())
    assert quantized.keys() == ({"qdata", "scale"} if low == "int8" else set(whole.__tensor_flatten__()[0]))
    for name, tensor in quantized.items():
        assert tensor.dtype == getattr(whole, name).dtype, name
        assert torch.equal(tensor, getattr(whole, name)), name


def test_missing_torchao_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=r'pip install "mezzotint\[low-bit\]"') as caught:
        low_bit.prepare(nn.Sequential(nn.Linear(64, 64)), WeightForm(torch.bfloat16, "int8"))
    assert caught.value.code == "E1445"
