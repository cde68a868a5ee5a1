"""Adapters on networks that train."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest
import torch
from adapter_records import read_off
from torch import nn

from mezzotint.adapters import networks, targets
from mezzotint.adapters.modules import MAGNITUDE, row_lengths
from mezzotint.adapters.networks import AdapterShape, Method
from mezzotint.errors import WeightsError
from mezzotint.recipe.sections.run import LowBit
from mezzotint.weights import low_bit
from mezzotint.weights.low_bit import LowBitLinear, WeightForm

METHODS: tuple[Method, ...] = ("lora", "rslora", "dora", "loha", "lokr")


@pytest.fixture
def unet(bases: dict[str, Any]) -> Any:
    pytest.importorskip("peft")
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel.from_pretrained(bases["sd"].folder / "unet").eval()


def shape_of(bases: dict[str, Any], method: Method, **others: Any) -> AdapterShape:
    patterns = ["mid_block.*.to_q", "mid_block.resnets.0.conv1", "up_blocks.2.*.conv_shortcut"]
    layers = [layer.path for layer in targets.chosen(bases["sd"].names, "unet", patterns)]
    return AdapterShape(method, layers, **({"rank": 2, "alpha": 6.0} | others))


def says(unet: nn.Module) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    sample, states = torch.randn(1, 4, 8, 8, generator=draw), torch.randn(1, 5, 32, generator=draw)
    with torch.no_grad():
        return unet(sample, 400, encoder_hidden_states=states).sample  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", METHODS)
def test_an_adapter_begins_without_effect_and_trains_alone(
    method: Method, bases: dict[str, Any], unet: nn.Module
) -> None:
    before = says(unet)
    networks.put_on(unet, shape_of(bases, method))
    networks.set_initial(unet, "unet", seed=3)
    assert (says(unet) - before).abs().max() <= 1e-6 * before.abs().max()
    own = {id(each.parameter) for each in networks.trained(unet)}
    assert {id(p) for p in unet.parameters() if p.requires_grad} == own
    assert {each.path for each in networks.trained(unet)} == set(shape_of(bases, method).layers)


@pytest.mark.parametrize("method", METHODS)
def test_read_off_loaded_and_read_off_again_it_is_the_same(
    method: Method, bases: dict[str, Any], unet: nn.Module
) -> None:
    shape = shape_of(bases, method)
    networks.put_on(unet, shape)
    networks.set_initial(unet, "unet", seed=3)
    for each in networks.trained(unet):
        nn.init.normal_(each.parameter, generator=torch.Generator().manual_seed(len(each.path)))
    output, modules = says(unet), read_off(unet, shape)
    if method == "lokr":  # whole factors carry the scale
        modules = {path: m for path, m in modules.items() if not {"lokr_w1", "lokr_w2"} <= m.tensors.keys()}
        assert all(module.scale == 3.0 for module in modules.values())
        return
    networks.set_initial(unet, "unet", seed=4)
    assert not torch.equal(says(unet), output)
    networks.load(unet, modules)
    assert torch.equal(says(unet), output)


def test_initial_values_depend_on_their_address_alone(bases: dict[str, Any], unet: nn.Module) -> None:
    shape = shape_of(bases, "lora")
    networks.put_on(unet, shape)
    networks.set_initial(unet, "unet", seed=3)
    first = {(t.path, t.leaf): t.parameter.detach().clone() for t in networks.trained(unet)}
    torch.randn(10)
    networks.set_initial(unet, "unet", seed=3)
    assert all(torch.equal(first[t.path, t.leaf], t.parameter) for t in networks.trained(unet))
    networks.set_initial(unet, "unet", seed=4)
    assert not any(
        torch.equal(first[t.path, t.leaf], t.parameter) for t in networks.trained(unet) if t.leaf == "lora_down.weight"
    )


@pytest.mark.parametrize("init", ["kaiming", "gaussian"])
def test_initial_values_are_as_wide_as_stated(init: Any, bases: dict[str, Any], unet: nn.Module) -> None:
    networks.put_on(unet, shape_of(bases, "lora", rank=8))
    networks.set_initial(unet, "unet", seed=3, init=init)
    for each in networks.trained(unet):
        if each.leaf == "lora_up.weight":
            assert not each.parameter.any()
            continue
        bound = each.parameter[0].numel() ** -0.5
        if init == "kaiming":
            assert 0.8 * bound < each.parameter.abs().max() <= bound
        else:
            assert each.parameter.std().item() == pytest.approx(1 / 8, rel=0.3)


def test_magnitudes_begin_as_the_lengths_of_rows(bases: dict[str, Any], unet: nn.Module) -> None:
    shape = shape_of(bases, "dora")
    networks.put_on(unet, shape)
    networks.set_initial(unet, "unet", seed=3)
    for path, module in read_off(unet, shape).items():
        weight = bases["sd"].weights["unet"][f"{path}.weight"]
        assert torch.allclose(module.tensors[MAGNITUDE], row_lengths(weight), rtol=1e-6)


def test_layers_may_have_ranks_and_alphas_of_their_own(bases: dict[str, Any], unet: nn.Module) -> None:
    plain = shape_of(bases, "lora")
    shape = shape_of(bases, "lora", ranks={plain.layers[0]: 5}, alphas={plain.layers[1]: 1.0}, alpha=None)
    networks.put_on(unet, shape)
    modules = read_off(unet, shape)
    assert (modules[plain.layers[0]].rank, modules[plain.layers[0]].scale) == (5, 1.0)
    assert (modules[plain.layers[1]].rank, modules[plain.layers[1]].scale) == (2, 0.5)
    layer = dict(unet.named_modules())[plain.layers[1]]
    assert layer.scaling["default"] == 0.5


def test_an_adapter_of_another_rank_is_not_taken_over(bases: dict[str, Any], unet: nn.Module) -> None:
    shape = shape_of(bases, "lora")
    networks.put_on(unet, shape)
    modules = read_off(unet, shape)
    first = min(modules)
    torn = {first: modules[first].to(torch.float64)} | {path: m for path, m in modules.items() if path != first}
    networks.load(unet, torn)  # another type is no other adapter
    with pytest.raises(WeightsError, match=r"differs from the one asked for in \d+ tensors, the first mid_block"):
        networks.load(unet, {path: m for path, m in modules.items() if path != first})


def test_a_layer_that_is_not_there_is_named(unet: nn.Module) -> None:
    with pytest.raises(WeightsError, match=r"no layer mid_block\.attn"):
        networks.put_on(unet, AdapterShape("lora", ["mid_block.attn"]))


def test_without_peft_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=r'pip install "mezzotint\[adapters\]"') as caught:
        networks.require_peft()
    assert caught.value.code == "E1438"


@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs the extra low-bit")
@pytest.mark.parametrize(
    ("method", "low"),
    [
        ("lora", "int8"),
        pytest.param("lora", "nf4", marks=pytest.mark.slow),
        pytest.param("dora", "int8", marks=pytest.mark.slow),
        pytest.param("lokr", "nf4", marks=pytest.mark.slow),
    ],
)
def test_over_a_base_in_few_bits_it_learns_as_over_that_base_unpacked(
    method: Method, low: LowBit, bases: dict[str, Any], unet: Any
) -> None:
    """The same start, steps and end as over a plain network with the matrices that the few bits stand for."""
    small = low_bit.converted(copy.deepcopy(unet), WeightForm(torch.float32, low))
    for path, module in small.named_modules():
        if isinstance(module, LowBitLinear):
            unet.get_submodule(path).weight.data.copy_(module.weight)
    paths = [path for path, module in small.named_modules() if isinstance(module, LowBitLinear) and "attn" in path]
    kept = {name: tensor.clone() for name, tensor in small.named_buffers()}
    losses = {}
    for name, network in (("small", small), ("plain", unet)):
        networks.put_on(network, AdapterShape(method, paths, 4))
        networks.set_initial(network, "unet", seed=3)
        moving = torch.optim.Adam([each.parameter for each in networks.trained(network)], lr=1e-2)
        draw = torch.Generator().manual_seed(0)
        sample, states = torch.randn(1, 4, 8, 8, generator=draw), torch.randn(1, 5, 32, generator=draw)
        losses[name] = []
        for _ in range(5):
            loss = (network(sample, 400, encoder_hidden_states=states).sample - sample).square().mean()
            moving.zero_grad()
            loss.backward()
            moving.step()
            losses[name].append(float(loss.detach()))
    assert losses["small"] == pytest.approx(losses["plain"], rel=1e-3)
    assert losses["small"][-1] < losses["small"][0]
    after = {name.replace(".base_layer", ""): tensor for name, tensor in small.named_buffers()}
    assert kept.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in kept.items()), "to the bit"
