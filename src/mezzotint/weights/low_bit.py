"""Frozen weights quantized to 8 or 4 bits, with torchao: linear layers that dequantize their matrix at each use.

`int8` has one scale for each row (symmetric); `nf4` the 16 values of QLoRA's NormalFloat (Dettmers et al. 2023,
arXiv:2305.14314), scaled by blocks of 64 numbers whose scales are stored in 8 bits. Both depend only on the weight, so
a resumed run is bit-exact. Needs the extra `low-bit`, which is imported at first use.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mezzotint.errors import WeightsError
from mezzotint.settings.sections.run import LowBit
from mezzotint.weights.layer_streaming import LayerStreamer

_BLOCK = 64
"""Numbers per scale in nf4, as in QLoRA."""
_SCALES = 256
"""At most so many scales share a second-level scale."""
_AT_ONCE = 1 << 16
"""Numbers of a matrix that are quantized at a time; each needs some 150 bytes of temporary memory."""
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class WeightForm:
    """How the weights of a network are held. dtype: of all floating-point tensors. low_bit: the quantization of linear
    layers' matrices, in place of `dtype`. device: where stored weights are moved; random or converted ones stay where
    they are. layer_streamer: streams stored layers, which are in memory only while they compute. keeps_fp32: whether
    layers that the library keeps in float32 stay so."""

    dtype: torch.dtype
    low_bit: LowBit | None = None
    device: torch.device = CPU
    layer_streamer: LayerStreamer | None = None
    is_deferred: bool = False
    """Whether stored parameters are left empty, to be filled by rows later: `state.get_deferred_filling`."""
    keeps_fp32: bool = False

    def dtype_of(self, network: nn.Module, name: str) -> torch.dtype:
        """The dtype of one of a network's tensors."""
        return torch.float32 if self.keeps_fp32 and keeps_in_fp32(network, name) else self.dtype

    def convert(self, tensor: Tensor, network: nn.Module, name: str) -> Tensor:
        """A copy of a network's tensor in this form. It is moved in its stored dtype and cast on the device, so no
        cast copy remains on the host."""
        dtype = self.dtype_of(network, name)
        if self.device.type == "cpu":
            return tensor.to(dtype, copy=True)
        return tensor.to(self.device).to(dtype)


def keeps_in_fp32(network: nn.Module, name: str) -> bool:
    """Whether diffusers keeps a tensor or module of this network in float32 when the rest is in half precision."""
    patterns = (
        getattr(network, "_keep_in_fp32_modules", None) if type(network).__module__.startswith("diffusers.") else ()
    )
    return not set(patterns or ()).isdisjoint(name.split("."))


def fp32_tensors(network: nn.Module) -> list[Tensor]:
    """All tensors of a network that stay in float32: parameters, and buffers that no file contains."""
    named = (*network.named_parameters(), *network.named_buffers())
    return [tensor for name, tensor in named if keeps_in_fp32(network, name)]


FLOAT32 = WeightForm(torch.float32)


def require_torchao() -> None:
    """Raises WeightsError E1445 where torchao is not installed."""
    if importlib.util.find_spec("torchao") is None:
        raise WeightsError(
            'quantized weights need the package torchao; install it with `pip install "mezzotint[low-bit]"`',
            code="E1445",
        )


class LowBitLinear(nn.Linear):
    """A linear layer whose frozen matrix is stored quantized, in buffers. `weight` is dequantized at each access."""

    def __init__(self, linear: nn.Linear, low_bit: LowBit) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.low_bit = low_bit
        self.register_parameter("bias", linear.bias)
        self.train(linear.training)

    def pack(self, weight: Tensor, device: torch.device | None = None) -> None:
        """Quantizes a matrix into the buffers. weight: (out, in), of any floating dtype; it is converted to float32 in
        pieces. device: of the buffers; the matrix's by default."""
        for name, tensor in _quantize(weight.detach(), self.low_bit).items():
            self.register_buffer(name, tensor if device is None else tensor.to(device), persistent=False)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # nn.Linear's is a parameter; readers need a matrix
        """(out, in) float32, without gradient."""
        return self.matrix(torch.float32)

    def matrix(self, dtype: torch.dtype) -> Tensor:
        """The matrix, (out, in) in `dtype`."""
        return _dequantize(self._buffers, (self.out_features, self.in_features), self.low_bit).to(dtype)

    def forward(self, input: Tensor) -> Tensor:
        """See nn.Linear."""
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        return cast(Tensor, _Product.apply(input.to(dtype), bias, self))  # type: ignore[no-untyped-call]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LowBitLinear:
        """Moves the buffers of the quantized matrix without casting them: a scale in bf16 would change the matrix."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in before.items():
            assert tensor is not None
            self._buffers[name] = tensor.to(cast(Tensor, self._buffers[name]).device)
        return self


class _Product(torch.autograd.Function):
    """x Wᵀ + b. The backward pass dequantizes the matrix again instead of saving it; frozen weights get no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, layer: LowBitLinear) -> Tensor:
        ctx.layer = layer
        with torch.autocast(x.device.type, enabled=False):
            return functional.linear(x, layer.matrix(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        with torch.autocast(gradient.device.type, enabled=False):
            return gradient @ ctx.layer.matrix(gradient.dtype), None, None


def prepare(network: nn.Module, form: WeightForm) -> dict[str, LowBitLinear]:
    """Replaces each linear layer that can be quantized in this form by a LowBitLinear, and returns those by the names
    of their weights, which `pack` is still to set. Raises WeightsError E1445."""
    if form.low_bit is None:
        return {}
    require_torchao()
    layers: dict[str, LowBitLinear] = {}
    for path, module in list(network.named_modules()):
        if form.keeps_fp32 and keeps_in_fp32(network, path):
            continue
        if type(module) is nn.Linear and (form.low_bit == "int8" or module.weight.numel() % _BLOCK == 0):
            layers[f"{path}.weight"] = LowBitLinear(module, form.low_bit)
            network.set_submodule(path, layers[f"{path}.weight"])
    return layers


def convert_network(network: nn.Module, form: WeightForm) -> nn.Module:
    """Converts a float32 network to another form in place and returns it; it may be on the meta device. Raises
    WeightsError E1445."""
    if form == FLOAT32:
        return network
    matrices = {f"{path}.weight": m.weight for path, m in network.named_modules() if type(m) is nn.Linear}
    for name, layer in prepare(network, form).items():
        layer.pack(matrices[name])
    fp32_ids = {id(tensor) for tensor in fp32_tensors(network)} if form.keeps_fp32 else ()
    nn.Module._apply(network, lambda t: t.to(form.dtype) if t.is_floating_point() and id(t) not in fp32_ids else t)
    return network


def numbers_of(network: nn.Module) -> int:
    """The number of parameters of a network, quantized ones included."""
    layers = (module for module in network.modules() if isinstance(module, LowBitLinear))
    return sum(p.numel() for p in network.parameters()) + sum(m.in_features * m.out_features for m in layers)


def _quantize(weight: Tensor, low_bit: LowBit) -> dict[str, Tensor]:
    """The buffers of a quantized matrix. weight: (out, in). It is converted `_AT_ONCE` numbers at a time, to bound
    temporary memory; the result is bitwise identical to quantizing the whole matrix at once."""
    import torchao.quantization as torchao

    match low_bit:
        case "int8":
            rows = weight.shape[0] if weight.is_meta else max(1, _AT_ONCE // weight.shape[1])
            quantized = (
                torchao.Int8Tensor.from_hp(p.float(), granularity=torchao.PerRow()) for p in weight.split(rows)
            )
            qdata, scale = _concatenate(((piece.qdata, piece.scale) for piece in quantized), len(weight))
            return {"qdata": qdata, "scale": scale}
        case "nf4":
            like = torchao.to_nf4(torch.ones(_BLOCK, device=weight.device), _BLOCK, 1)  # for its table
            pieces = weight.reshape(-1).split(weight.numel() if weight.is_meta else _AT_ONCE)
            blocks = weight.numel() // _BLOCK
            (largest,) = _concatenate(((p.float().view(-1, _BLOCK).abs().amax(dim=1),) for p in pieces), blocks)
            scales = torchao.NF4Tensor.double_quantize_scalers(largest, 1, math.gcd(largest.numel(), _SCALES))
            encode = torchao.NF4Tensor.convert_to_norm_float_weight
            encoded = ((encode(p.float(), p.numel() // _BLOCK, _BLOCK, like.nf4),) for p in pieces)
            (codes,) = _concatenate(encoded, weight.numel() // 2)
            names = ("quantized_scalers", "quantization_factor", "scaler_mean", "quantized_data", "nf4")
            return dict(zip(names, (*scales, codes, like.nf4), strict=True))


def _concatenate(portions: Iterable[tuple[Tensor, ...]], length: int) -> list[Tensor]:
    """Concatenates pieces of several tensors along the first axis, in all `length` long. Each piece is copied to its
    position as it comes: a list of all pieces would need the memory twice."""
    whole: list[Tensor] = []
    start = 0
    for pieces in portions:
        if not whole:
            if len(pieces[0]) == length:
                return list(pieces)
            whole = [piece.new_empty((length, *piece.shape[1:])) for piece in pieces]
        for result, piece in zip(whole, pieces, strict=True):
            result[start : start + len(piece)] = piece
        start += len(pieces[0])
    return whole


def _dequantize(buffers: Mapping[str, Any], shape: tuple[int, int], low_bit: LowBit) -> Tensor:
    """The matrix, (out, in) float32."""
    import torchao.quantization as torchao

    match low_bit:
        case "int8":
            int8 = torchao.Int8Tensor(buffers["qdata"], buffers["scale"], [1, shape[1]], torch.float32)
            return cast(Tensor, int8.dequantize())
        case "nf4":
            blocks = math.prod(shape) // _BLOCK
            layout = _Layout(torch.Size(shape), (shape[1], 1), device=buffers["quantized_data"].device)
            nf4 = torchao.NF4Tensor(layout, _BLOCK, blocks, math.gcd(blocks, _SCALES), **buffers)
            return cast(Tensor, nf4.get_original_weight())


class _Layout(NamedTuple):
    """What `NF4Tensor` reads of the original tensor."""

    original_shape: torch.Size
    original_strides: tuple[int, int]
    device: torch.device
    storage_offset: int = 0
    dtype: torch.dtype = torch.float32
    requires_grad: bool = False
