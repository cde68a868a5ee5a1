"""Changes of a layer's weight by an adapter."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.adapters.modules import MAGNITUDE, AdapterModule, Kind, row_lengths
from support.rounding import within

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "adapters"
TENSORS = load_file(RECORDS / "lycoris.safetensors")
CASES = {name: row for name, row in json.loads((RECORDS / "lycoris.json").read_text()).items() if row}


def module_of(case: str) -> AdapterModule:
    """The module of a record."""
    own = {name.removeprefix(f"{case}."): tensor for name, tensor in TENSORS.items() if name.startswith(f"{case}.")}
    tensors = {n: t for n, t in own.items() if n.startswith(("lora_", "hada_", "lokr_", MAGNITUDE))}
    kinds: dict[str, Kind] = {"lora": "lora", "dora": "lora", "loha": "loha", "lokr": "lokr"}
    return AdapterModule(kinds[case[:4]], tensors, float(own["alpha"]))


@pytest.mark.parametrize("case", CASES)
def test_weight_matches_lycoris_forward_pass(case: str) -> None:
    module, base = module_of(case), TENSORS[f"{case}.base"]
    assert module.scale == pytest.approx(CASES[case]["scale"])
    assert module.rank == CASES[case]["rank"] or case == "lokr_conv"  # two full factors have no rank
    adapted = module.merge_into(base)
    if base.ndim == 2:
        within(adapted, TENSORS[f"{case}.effective_weight"], roundings=40)
    else:
        output = torch.nn.functional.conv2d(TENSORS[f"{case}.conv_input"], adapted, padding=1)
        within(output, TENSORS[f"{case}.conv_output"], roundings=400)


def test_lokr_may_have_a_separate_kernel_tensor() -> None:
    draw = torch.Generator().manual_seed(1)
    shapes = {"lokr_w1": (4, 2), "lokr_w2_a": (2, 4), "lokr_w2_b": (2, 4), "lokr_t2": (2, 2, 3, 3)}
    tensors = {leaf: torch.randn(*shape, generator=draw) for leaf, shape in shapes.items()}
    module = AdapterModule("lokr", tensors, 6.0)
    assert module.fits((16, 8, 3, 3))
    block = torch.einsum("abhw,ao,bi->hwoi", tensors["lokr_t2"], tensors["lokr_w2_a"], tensors["lokr_w2_b"])
    change = module.difference((16, 8, 3, 3))
    for row, column in ((0, 0), (2, 1)):
        within(
            change[:, :, row, column], 3 * torch.kron(tensors["lokr_w1"], block[row, column].contiguous()), roundings=20
        )


def lora(rank: int = 2, *, alpha: float | None = None, stabilized: bool = False, dora: bool = False) -> AdapterModule:
    draw = torch.Generator().manual_seed(1)
    tensors = {
        "lora_down.weight": torch.randn(rank, 6, generator=draw),
        "lora_up.weight": torch.randn(5, rank, generator=draw),
    }
    if dora:
        tensors[MAGNITUDE] = torch.rand(5, 1, generator=draw) + 0.5
    return AdapterModule("lora", tensors, alpha, stabilized)


WEIGHT = torch.randn(5, 6, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("alpha", "stabilized", "scale", "plain"),
    [(None, False, 1.0, 4.0), (8.0, False, 2.0, 8.0), (8.0, True, 4.0, 16.0), (None, True, 1.0, 4.0)],
)
def test_scale_is_alpha_over_the_rank_or_its_root(
    alpha: float | None, stabilized: bool, scale: float, plain: float
) -> None:
    module = lora(4, alpha=alpha, stabilized=stabilized)
    assert (module.scale, module.plain_alpha) == (scale, plain)


def test_strength_interpolates_between_base_and_trained_weight() -> None:
    for module in (lora(alpha=3.0), lora(alpha=3.0, dora=True)):
        whole = module.merge_into(WEIGHT) - WEIGHT
        assert torch.equal(module.merge_into(WEIGHT, 0.0), WEIGHT)
        within(module.merge_into(WEIGHT, -0.5), WEIGHT - 0.5 * whole, roundings=8)


def test_dora_rows_have_the_stored_magnitudes() -> None:
    module = lora(dora=True)
    within(row_lengths(module.merge_into(WEIGHT)), module.tensors[MAGNITUDE], roundings=8)


@pytest.mark.parametrize("weight", [WEIGHT, WEIGHT[:, :, None, None]], ids=["matrix", "pointwise convolution"])
def test_pointwise_convolutions_and_matrices_are_interchangeable(weight: Tensor) -> None:
    plain = lora()
    pointwise = AdapterModule("lora", {name: tensor[:, :, None, None] for name, tensor in plain.tensors.items()})
    for module in (plain, pointwise):
        assert module.fits(tuple(weight.shape))
        assert module.difference(tuple(weight.shape)).shape == weight.shape
        within(module.difference(tuple(weight.shape)).reshape(5, 6), plain.difference((5, 6)), roundings=0)


@pytest.mark.parametrize("shape", [(6, 5), (5, 7), (5, 6, 3, 3), (10, 3)])
def test_weight_of_another_shape_does_not_fit(shape: tuple[int, ...]) -> None:
    assert not lora().fits(shape)


def test_rotation_of_another_shape_does_not_fit() -> None:
    """A file may contain tensors of any shape."""
    fits = {shape: AdapterModule("oft", {"oft_R.weight": torch.zeros(shape)}).fits((5, 6))
            for shape in ((2, 3), (3, 3), (6,), (2, 3, 1))}  # fmt: skip
    assert [shape for shape, does_fit in fits.items() if does_fit] == [(2, 3)], "two blocks of three inputs"


def test_magnitudes_of_another_row_count_do_not_fit() -> None:
    module = lora(dora=True)
    torn = AdapterModule("lora", dict(module.tensors) | {MAGNITUDE: torch.ones(4, 1)})
    assert module.fits((5, 6))
    assert not torn.fits((5, 6))


def test_adapted_weight_is_float32_for_float16_files() -> None:
    half = lora(alpha=8.0).to(torch.float16)
    assert half.merge_into(WEIGHT.half()).dtype == torch.float32
    assert half.parameters == 2 * 6 + 5 * 2
    assert math.isclose(half.scale, 4.0)
