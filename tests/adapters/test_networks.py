"""Adapters attached to networks."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mezzotint.adapters import networks, targets
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.merging import scale_adapter
from mezzotint.adapters.modules import MAGNITUDE, AdapterModule, row_lengths
from mezzotint.adapters.names import LayerName
from mezzotint.adapters.networks import AdapterShape, Method
from mezzotint.errors import WeightsError
from mezzotint.settings.sections.run import LowBit
from mezzotint.weights import low_bit
from mezzotint.weights.low_bit import LowBitLinear, WeightForm
from support.adapter_records import RECORDS, read_off
from support.rounding import within

METHODS: tuple[Method, ...] = ("lora", "rslora", "dora", "loha", "lokr")


@pytest.fixture(scope="module")
def original_unet(bases: dict[str, Any]) -> Any:
    pytest.importorskip("peft")
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel.from_pretrained(bases["sd"].folder / "unet").eval()


@pytest.fixture
def unet(original_unet: Any) -> Any:
    return copy.deepcopy(original_unet)


def shape_of(bases: dict[str, Any], method: Method, **others: Any) -> AdapterShape:
    patterns = ["mid_block.*.to_q", "mid_block.resnets.0.conv1", "up_blocks.2.*.conv_shortcut"]
    layers = [layer.path for layer in targets.select_layers(bases["sd"].names, "unet", patterns)]
    return AdapterShape(method, layers, **({"rank": 2, "alpha": 6.0} | others))


def predict(unet: nn.Module) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    sample, states = torch.randn(1, 4, 8, 8, generator=draw), torch.randn(1, 5, 32, generator=draw)
    with torch.no_grad():
        return unet(sample, 400, encoder_hidden_states=states).sample  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["lora", "dora", "loha", "lokr"])
def test_initial_adapter_has_no_effect_and_only_it_is_trainable(
    method: Method, bases: dict[str, Any], unet: nn.Module
) -> None:
    before = predict(unet)
    networks.attach(unet, shape_of(bases, method))
    networks.set_initial(unet, "unet", seed=3)
    assert (predict(unet) - before).abs().max() <= 1e-6 * before.abs().max()
    own = {id(each.parameter) for each in networks.adapter_parameters(unet)}
    assert {id(p) for p in unet.parameters() if p.requires_grad} == own
    assert {each.path for each in networks.adapter_parameters(unet)} == set(shape_of(bases, method).layers)


@pytest.mark.parametrize("method", METHODS)
def test_exported_adapter_loads_back_exactly(method: Method, bases: dict[str, Any], unet: nn.Module) -> None:
    shape = shape_of(bases, method)
    networks.attach(unet, shape)
    networks.set_initial(unet, "unet", seed=3)
    for each in networks.adapter_parameters(unet):
        nn.init.normal_(each.parameter, generator=torch.Generator().manual_seed(len(each.path)))
    output, modules = predict(unet), read_off(unet, shape)
    if method == "lokr":  # whole factors carry the scale
        modules = {path: m for path, m in modules.items() if not {"lokr_w1", "lokr_w2"} <= m.tensors.keys()}
        assert all(module.scale == 3.0 for module in modules.values())
        return
    networks.set_initial(unet, "unet", seed=4)
    assert not torch.equal(predict(unet), output)
    networks.load(unet, modules)
    assert torch.equal(predict(unet), output)


ALL = "lokr_w1_a lokr_w1_b lokr_w2_a lokr_w2_b"


@pytest.mark.parametrize("convolution", [False, True], ids=["matrix", "convolution"])
@pytest.mark.parametrize(
    ("rank", "factor", "both", "leaves"),
    [
        (1, -1, True, ALL),
        (3, 8, True, "lokr_w1_a lokr_w1_b lokr_w2"),
        (3, -1, True, "lokr_w1 lokr_w2_a lokr_w2_b"),
        (1, -1, False, "lokr_w1 lokr_w2_a lokr_w2_b"),
        (4, -1, True, "lokr_w1 lokr_w2"),
    ],
)
def test_exported_lokr_changes_weights_like_in_training(
    convolution: bool, rank: int, factor: int, both: bool, leaves: str
) -> None:
    """For any full factors: readers of files scale by alpha / rank, but by 1 if both factors are full."""
    pytest.importorskip("peft")
    network = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1) if convolution else nn.Linear(32, 32))
    inputs, weight = sampled(2, 32, 5, 5) if convolution else sampled(2, 32), network[0].weight.detach().clone()
    shape = AdapterShape("lokr", ["0"], rank, 6.0, factor=factor, decompose_both=both)
    networks.attach(network, shape)
    networks.set_initial(network, "unet", seed=3)
    plain = network[0].base_layer(inputs)
    assert torch.equal(network(inputs), plain), "without effect at first"
    for number, each in enumerate(networks.adapter_parameters(network)):
        each.parameter.data.copy_(sampled(*each.parameter.shape, seed=number))
    module = read_off(network, shape)["0"]
    assert " ".join(sorted(module.tensors)) == leaves
    trained = network(inputs)
    network[0].base_layer.weight.copy_(module.merge_into(weight))
    within(network[0].base_layer(inputs), trained, roundings=400)


@pytest.mark.parametrize("layer", [nn.Linear(48, 20), nn.Conv2d(48, 20, 1)])
def test_oft_rotates_inputs_as_its_file_says(layer: nn.Module) -> None:
    pytest.importorskip("peft")
    network = nn.Sequential(layer)
    inputs = sampled(2, 48, 5, 5) if isinstance(layer, nn.Conv2d) else sampled(2, 48)
    shape, weight = AdapterShape("oft", ["0"], 32), layer.weight.detach().clone()
    networks.attach(network, shape)
    networks.set_initial(network, "unet", seed=3)
    assert torch.equal(network(inputs), network[0].base_layer(inputs)), "without effect at first"
    (parameter,) = (trained.parameter for trained in networks.adapter_parameters(network))
    assert tuple(parameter.shape) == (2, 24 * 23 // 2), "24 divides 48 and is the nearest to 32"
    parameter.data.copy_(0.02 * sampled(*parameter.shape))
    module = read_off(network, shape)["0"]
    assert (module.kind, module.rank, module.fits(tuple(weight.shape))) == ("oft", 24, True)
    assert not module.fits((20, 47))
    trained = network(inputs)
    merged = module.merge_into(weight)
    lengths = [torch.linalg.vector_norm(one.flatten(1), dim=1) for one in (weight, merged)]
    torch.testing.assert_close(lengths[0], lengths[1], rtol=2e-3, atol=0), "up to the series' end"
    network[0].base_layer.weight.copy_(merged)
    within(network[0].base_layer(inputs), trained, roundings=400)
    with pytest.raises(WeightsError, match="is an OFT, whose strength"):
        scale_adapter(Adapter({LayerName("unet", "0"): module}), 0.5)


def sampled(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def modules_of_lycoris(kind: Any) -> tuple[dict[str, AdapterModule], dict[str, Tensor]]:
    """Adapters written by LyCORIS, and the weights that they belong to, by the name of the record."""
    tensors: dict[str, dict[str, Tensor]] = {}
    for name, tensor in load_file(RECORDS / "lycoris.safetensors").items():
        case, _, leaf = name.partition(".")
        tensors.setdefault(case, {})[leaf] = tensor
    own = {case: held for case, held in tensors.items() if case.startswith(kind)}
    modules = {
        case: AdapterModule(
            kind, {leaf: t for leaf, t in held.items() if leaf in networks.FACTORS}, float(held["alpha"])
        )
        for case, held in own.items()
    }
    return modules, {case: held["base"] for case, held in own.items()}


@pytest.mark.parametrize("kind", ["loha", "lokr"])
def test_loaded_layers_train_in_the_form_of_their_file(kind: Any) -> None:
    """Factors that are full or low-rank, split by other rules than peft's, and kernels in a separate tensor."""
    pytest.importorskip("peft")
    modules, weights = modules_of_lycoris(kind)
    if kind == "lokr":
        assert set(ALL.split()) == modules["lokr_both"].tensors.keys()
        assert {"lokr_w1", "lokr_w2"} == modules["lokr_conv"].tensors.keys()
        first = {"lokr_w1_a": sampled(4, 2), "lokr_w1_b": sampled(2, 4, seed=1)}
        modules["whole_w2"] = AdapterModule("lokr", first | {"lokr_w2": sampled(4, 6)}, 6.0)
        kernel = {"lokr_w2_a": sampled(2, 4), "lokr_w2_b": sampled(2, 4), "lokr_t2": sampled(2, 2, 3, 3)}
        modules["kernel"] = AdapterModule("lokr", {"lokr_w1": sampled(4, 2)} | kernel, 6.0)
        weights |= {"whole_w2": weights["lokr_auto"], "kernel": weights["lokr_conv"]}
    network = nn.ModuleDict({case: layer_with(weight) for case, weight in weights.items()})
    shape = networks.shape_of(modules)
    networks.attach(network, shape)
    networks.load(network, modules)
    for case, module in read_off(network, shape).items():
        assert module.tensors.keys() == modules[case].tensors.keys()
        assert module.scale == modules[case].scale
        inputs = sampled(2, weights[case].shape[1], *(5,) * (weights[case].ndim - 2))
        expected = layer_with(modules[case].merge_into(weights[case]))(inputs)
        within(network[case](inputs), expected, roundings=400, name=case)
        network[case](inputs).sum().backward()
    assert all(each.parameter.grad is not None for each in networks.adapter_parameters(network))


def layer_with(weight: Tensor) -> nn.Module:
    out, inputs, *sides = weight.shape
    layer = nn.Conv2d(inputs, out, 3, padding=1, bias=False) if sides else nn.Linear(inputs, out, bias=False)
    layer.weight.data.copy_(weight)
    return layer


def test_decomposed_first_lokr_factor_starts_with_unit_variance() -> None:
    pytest.importorskip("peft")
    first = {}
    for both in (True, False):
        network = nn.Sequential(nn.Linear(1024, 1024))
        networks.attach(network, AdapterShape("lokr", ["0"], 8, decompose_both=both))
        networks.set_initial(network, "unet", seed=3)
        own = {each.leaf: each.parameter.detach() for each in networks.adapter_parameters(network)}
        first[both] = own["lokr_w1_a"] @ own["lokr_w1_b"] if both else own["lokr_w1"]
    assert [float(each.std()) for each in first.values()] == pytest.approx([1, 1], rel=0.2)


def test_initial_values_depend_only_on_seed_and_layer(bases: dict[str, Any], unet: nn.Module) -> None:
    shape = shape_of(bases, "lora")
    networks.attach(unet, shape)
    networks.set_initial(unet, "unet", seed=3)
    first = {(t.path, t.leaf): t.parameter.detach().clone() for t in networks.adapter_parameters(unet)}
    torch.randn(10)
    networks.set_initial(unet, "unet", seed=3)
    assert all(torch.equal(first[t.path, t.leaf], t.parameter) for t in networks.adapter_parameters(unet))
    networks.set_initial(unet, "unet", seed=4)
    assert not any(
        torch.equal(first[t.path, t.leaf], t.parameter)
        for t in networks.adapter_parameters(unet)
        if t.leaf == "lora_down.weight"
    )


@pytest.mark.parametrize("init", ["kaiming", "gaussian"])
def test_initial_values_have_the_documented_range(init: Any, bases: dict[str, Any], unet: nn.Module) -> None:
    networks.attach(unet, shape_of(bases, "lora", rank=8))
    networks.set_initial(unet, "unet", seed=3, init=init)
    for each in networks.adapter_parameters(unet):
        if each.leaf == "lora_up.weight":
            assert not each.parameter.any()
            continue
        bound = each.parameter[0].numel() ** -0.5
        if init == "kaiming":
            assert 0.8 * bound < each.parameter.abs().max() <= bound
        else:
            assert each.parameter.std().item() == pytest.approx(1 / 8, rel=0.3)


def test_initial_magnitudes_are_the_row_norms(bases: dict[str, Any], unet: nn.Module) -> None:
    shape = shape_of(bases, "dora")
    networks.attach(unet, shape)
    networks.set_initial(unet, "unet", seed=3)
    for path, module in read_off(unet, shape).items():
        weight = bases["sd"].weights["unet"][f"{path}.weight"]
        assert torch.allclose(module.tensors[MAGNITUDE], row_lengths(weight), rtol=1e-6)


def test_layers_may_have_individual_ranks_and_alphas(bases: dict[str, Any], unet: nn.Module) -> None:
    plain = shape_of(bases, "lora")
    shape = shape_of(bases, "lora", ranks={plain.layers[0]: 5}, alphas={plain.layers[1]: 1.0}, alpha=None)
    networks.attach(unet, shape)
    modules = read_off(unet, shape)
    assert (modules[plain.layers[0]].rank, modules[plain.layers[0]].scale) == (5, 1.0)
    assert (modules[plain.layers[1]].rank, modules[plain.layers[1]].scale) == (2, 0.5)
    layer = dict(unet.named_modules())[plain.layers[1]]
    assert layer.scaling["default"] == 0.5


def test_adapter_with_missing_layers_is_not_loaded(bases: dict[str, Any], unet: nn.Module) -> None:
    shape = shape_of(bases, "lora")
    networks.attach(unet, shape)
    modules = read_off(unet, shape)
    first = min(modules)
    torn = {first: modules[first].to(torch.float64)} | {path: m for path, m in modules.items() if path != first}
    networks.load(unet, torn)  # another type is no other adapter
    with pytest.raises(WeightsError, match=r"differs from the requested one in \d+ tensors, the first mid_block"):
        networks.load(unet, {path: m for path, m in modules.items() if path != first})


def test_missing_layer_is_reported(unet: nn.Module) -> None:
    with pytest.raises(WeightsError, match=r"no layer mid_block\.attn"):
        networks.attach(unet, AdapterShape("lora", ["mid_block.attn"]))


def test_missing_peft_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=r'pip install "mezzotint\[adapters\]"') as caught:
        networks.require_peft()
    assert caught.value.code == "E1438"


@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs the extra low-bit")
@pytest.mark.parametrize("low", ["int8", "nf4"])
@pytest.mark.parametrize(("method", "lr"), [("lora", 0.05), ("dora", 0.05), ("lokr", 0.002)])
def test_adapter_trains_the_same_on_a_quantized_base(method: Method, lr: float, low: LowBit) -> None:
    """The same losses as with a plain network that has the dequantized matrices."""
    pytest.importorskip("peft")
    plain: Any = nn.Sequential(nn.Linear(128, 64), nn.SiLU(), nn.Linear(64, 128))
    for number in (0, 2):
        plain[number].weight.data.copy_(sampled(*plain[number].weight.shape, seed=number) / 10)
    quantized: Any = low_bit.convert_network(copy.deepcopy(plain), WeightForm(torch.float32, low))
    for number in (0, 2):
        assert isinstance(quantized[number], LowBitLinear)
        plain[number].weight.data.copy_(quantized[number].weight)
    before = {name: tensor.clone() for name, tensor in quantized.named_buffers()}
    losses = {}
    for name, network in (("quantized", quantized), ("plain", plain)):
        networks.attach(network, AdapterShape(method, ["0", "2"], 4))
        networks.set_initial(network, "unet", seed=3)
        optimizer = torch.optim.SGD([each.parameter for each in networks.adapter_parameters(network)], lr=lr)
        inputs, losses[name] = sampled(5, 128), []
        for _ in range(5):
            loss = (network(inputs) - inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[name].append(float(loss.detach()))
    assert losses["quantized"] == pytest.approx(losses["plain"], rel=1e-3)
    assert losses["quantized"][-1] < losses["quantized"][0]
    after = {name.replace(".base_layer", ""): tensor for name, tensor in quantized.named_buffers()}
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
