"""LatteT2V against Open-Sora-Plan's own class: outputs and gradients of every recorded case."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.compat.open_sora_plan.nets.latte import Latte, LatteConfig
from support.rounding import RoundedOnce, within

DATA = Path(__file__).parents[2] / "parity" / "data" / "open-sora-plan"
RECORDS = ("latte_base", "latte_rope", "latte_compress_kv")
CASES = [(r, case) for r in RECORDS for case in json.loads((DATA / f"{r}.json").read_text())["cases"]]
# a record's own sums are 9 roundings (of outputs) and 21 (of gradients) from the truth, as float64 shows anywhere;
# float32 adds up in an order that the processor chooses, which may cost several times as much
ROUNDINGS = {torch.float64: (32, 64), torch.float32: (128, 256)}
RECORDED = [12, 106]
"""Frequencies of a timestep, of 128, that the program which made the records rounded up where the nearest number lies
below (MKL's exponential with SSE instructions does). Angles come to 1000: one rounding of each frequency moves outputs
by up to 162 roundings and gradients by 359, and each processor's exponential rounds others wrongly."""
TRAINED = [(r, case) for r, case in CASES if "train" in case and case != "joint_train_plain"]


class AsRecorded(RoundedOnce):
    """Rounded once, and a timestep's frequencies as in the records: alike on every processor."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        if func is torch.exp and (result.dtype, result.shape) == (torch.float32, (128,)):
            result.view(torch.int32)[RECORDED] += 1
        return result


@lru_cache(maxsize=3)
def record(name: str) -> dict[str, Tensor]:
    return load_file(DATA / f"{name}.safetensors")


def described(name: str) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return description


def network(name: str, dtype: torch.dtype = torch.float32) -> Latte:
    latte = Latte(LatteConfig.read(described(name)["config"]))
    source = record("latte_base" if name == "latte_rope" else name)
    latte.load_state_dict({k.removeprefix("state."): v for k, v in source.items() if k.startswith("state.")})
    return latte.to(dtype)


def with_prefix(name: str, start: str) -> dict[str, Tensor]:
    return {k.removeprefix(start): v for k, v in record(name).items() if k.startswith(start)}


def run(latte: Latte, name: str, case: str) -> Tensor:
    description, dtype = described(name)["cases"][case], next(latte.parameters()).dtype
    tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in with_prefix(name, f"{case}.in.").items()}
    output: Tensor = latte(
        tensors["hidden_states"],
        tensors["timestep"],
        tensors["encoder_hidden_states"],
        text_mask=tensors.get("encoder_attention_mask"),
        latent_mask=tensors.get("attention_mask"),
        use_image_num=description.get("use_image_num", 0),
        temporal=description.get("enable_temporal_attentions", True),
    )
    return output


@pytest.mark.parametrize("dtype", ROUNDINGS, ids=str)
@pytest.mark.parametrize(("name", "case"), [c for c in CASES if c[1] != "joint_train_plain"])
def test_output_matches_the_record(name: str, case: str, dtype: torch.dtype) -> None:
    with torch.no_grad(), AsRecorded():
        output = run(network(name, dtype), name, case)
    within(output, record(name)[f"{case}.out.sample"], roundings=ROUNDINGS[dtype][0])


@pytest.mark.parametrize("dtype", ROUNDINGS, ids=str)
@pytest.mark.parametrize(("name", "case"), TRAINED)
def test_gradients_match_the_record(name: str, case: str, dtype: torch.dtype) -> None:
    latte = network(name, dtype).train()
    with AsRecorded():
        loss = run(latte, name, case).square().mean()
        loss.backward()
    within(loss.detach()[None], record(name)[f"{case}.out.loss_mean_square"], roundings=32, name="loss")
    parameters, expected = dict(latte.named_parameters()), with_prefix(name, f"{case}.grad.")
    assert len(expected) == 6
    for parameter, gradient in expected.items():
        gradients = parameters[parameter].grad
        assert gradients is not None
        within(gradients, gradient, roundings=ROUNDINGS[dtype][1], name=parameter)


def test_stills_differ_only_by_the_temporal_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open-Sora-Plan leaves the table out there. Ours adds it always; without it the record comes out."""
    latte, case = network("latte_base"), "joint_train_plain"
    expected = record("latte_base")[f"{case}.out.sample"]
    with torch.no_grad(), AsRecorded():
        assert (run(latte, "latte_base", case) - expected).abs().max() > 1
        monkeypatch.setattr(latte, "_time_table", lambda x, frames: torch.zeros(()))
        output = run(latte, "latte_base", case)
    within(output, expected, roundings=ROUNDINGS[torch.float32][0])
