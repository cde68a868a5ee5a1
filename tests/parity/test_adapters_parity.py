"""Adapters as trained by peft and LyCORIS: outputs, losses, gradients and weights after one and three steps.

Records: tests/parity/data/adapters, of tiny models in float32; the step is AdamW after clipping, with equal inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mezzotint.adapters import networks
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.networks import AdapterShape, Method
from support.adapter_records import read_off, statistics

pytest.importorskip("peft")
DATA = Path(__file__).parent / "data"
RECORDS = DATA / "adapters"
FOLDERS = {"sd": DATA / "diffusers" / "tiny_sd", "sdxl": RECORDS / "tiny_sdxl"}
CASES = sorted(path.stem for path in RECORDS.glob("sd*_r*.json"))
REPEATS = {case for case in CASES if case.startswith("sdxl") and "text" not in case and "auto" not in case}
REPEATS |= {"sd_lora_r4_a4"}
"""Cases that differ from a case of SD only in the network, whose layers have the same types; and a scale of 1 where
other cases have 2 and 0.5."""
ALPHAS_BAR = torch.cumprod(1 - torch.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2, 0)
METHODS: dict[tuple[str, bool, bool], Method] = {
    ("LORA", False, False): "lora", ("LORA", True, False): "rslora", ("LORA", False, True): "dora",
    ("LOHA", False, False): "loha", ("LOKR", False, False): "lokr",
}  # fmt: skip


LEAVES = {"lora_A": "lora_down.weight", "lora_B": "lora_up.weight", "lora_magnitude_vector": "dora_scale"}
"""Names of tensors in files, by those of peft, where they differ."""


class Model:
    """A tiny model with the adapters of a record, and its inputs. Networks are in evaluation mode, as recorded."""

    def __init__(self, case: str) -> None:
        from diffusers import UNet2DConditionModel
        from transformers import CLIPTextModel, CLIPTextModelWithProjection

        self.kind, self.row = case.split("_")[0], json.loads((RECORDS / f"{case}.json").read_text())
        folder, self.inputs = FOLDERS[self.kind], load_file(RECORDS / f"{self.kind}.inputs.safetensors")
        classes = {"unet": UNet2DConditionModel, "text_encoder": CLIPTextModel}
        classes["text_encoder_2"] = CLIPTextModelWithProjection
        self.shapes: dict[str, AdapterShape] = {}
        self.networks: dict[str, nn.Module] = {}
        initial = load_file(RECORDS / (self.row["init"] or f"{self.kind}_lora_r4_a4.init.safetensors"))
        for part in {"unet": 0} | self.row["adapter"]:
            network = classes[part].from_pretrained(folder / part).float().eval()
            self.networks[part] = network.requires_grad_(False)
        for part, settings in self.row["adapter"].items():
            own = {n.removeprefix(f"{part}."): t for n, t in initial.items() if n.startswith(f"{part}.")}
            self.put_on(part, settings, own)

    def put_on(self, part: str, settings: Mapping[str, Any], initial: Mapping[str, Tensor]) -> None:
        flags = bool(settings.get("use_rslora")), bool(settings.get("use_dora"))
        layers = sorted({_split(name)[0] for name in initial})
        network = self.networks[part]
        flat = part == "text_encoder"
        shape = AdapterShape(
            METHODS[(settings["peft_type"], *flags)],
            [f"text_model.{path}" if flat and not path.startswith("text_model.") else path for path in layers],
            settings["r"],
            settings.get("lora_alpha", settings.get("alpha")),
            factor=settings.get("decompose_factor", -1),
        )
        networks.attach(network, shape)
        self.shapes[part] = shape
        places = {
            (t.path.removeprefix("text_model."), t.leaf): t.parameter for t in networks.adapter_parameters(network)
        }
        assert len(places) == len(initial)
        with torch.no_grad():
            for name, tensor in initial.items():
                path, leaf = _split(name)
                parameter = places[path.removeprefix("text_model."), LEAVES.get(leaf, leaf)]
                parameter.copy_(tensor.reshape(parameter.shape))

    def parameters(self) -> dict[str, nn.Parameter]:
        """By the names of the record, in their order."""
        named = {
            f"{part}.{name.replace('.default', '')}": parameter
            for part in self.shapes
            for name, parameter in self.networks[part].named_parameters()
            if parameter.requires_grad
        }
        return dict(sorted(named.items()))

    def output(self) -> Tensor:
        alpha = ALPHAS_BAR[self.inputs["timesteps"]].view(-1, 1, 1, 1)
        noisy = alpha.sqrt() * self.inputs["latents"] + (1 - alpha).sqrt() * self.inputs["noise"]
        states, more = self.inputs["encoder_hidden_states"], {}
        if self.kind == "sdxl":
            more = {"text_embeds": self.inputs["text_embeds"], "time_ids": self.inputs["time_ids"]}
        if "text_encoder" in self.networks and self.kind == "sd":
            states = self.networks["text_encoder"](self.inputs["input_ids"])[0]
        elif "text_encoder" in self.networks:
            first = self.networks["text_encoder"](self.inputs["input_ids"], output_hidden_states=True)
            second = self.networks["text_encoder_2"](self.inputs["input_ids_2"], output_hidden_states=True)
            states = torch.cat((first.hidden_states[-2], second.hidden_states[-2]), -1)
            more["text_embeds"] = second.text_embeds
        predicted = self.networks["unet"](
            noisy, self.inputs["timesteps"], encoder_hidden_states=states, added_cond_kwargs=more or None
        )
        return predicted.sample  # type: ignore[no-any-return]

    def loss(self) -> Tensor:
        return nn.functional.mse_loss(self.output(), self.inputs["noise"])


def _split(name: str) -> tuple[str, str]:
    """Path and peft's leaf of a recorded name."""
    stem = name.removesuffix(".weight")
    path, _, leaf = stem.rpartition(".")
    return path, leaf


def near(ours: Tensor, record: Tensor, relative: float, absolute: float, sizes: Tensor) -> bool:
    """Whether statistics agree: by each tensor's absolute sum, and so much a number."""
    bound = relative * record[:, 1:2].abs() + absolute * sizes[:, None]
    return bool(((ours - record.double()).abs() <= bound).all())


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in REPEATS else case for case in CASES]
)
def test_three_steps_equal_the_record(case: str) -> None:
    torch.manual_seed(0)
    model, record = Model(case), load_file(RECORDS / f"{case}.safetensors")
    with torch.no_grad():
        output = model.output()
    assert (output - record["output.scale_1"]).abs().max() <= 1e-5 * record["output.scale_1"].abs().max()
    parameters = model.parameters()
    stated = set(model.row["no_gradient"])
    moving = {name: parameter for name, parameter in parameters.items() if name not in stated}
    assert len(parameters) == model.row["tensors"]
    sizes = torch.tensor([parameters[name].numel() for name in sorted(parameters)], dtype=torch.float64)
    optimizer = torch.optim.AdamW(moving.values(), lr=1e-3, weight_decay=0.01)
    for step in range(3):
        loss = model.loss()
        loss.backward()
        assert loss.item() == pytest.approx(model.row["loss"][step], rel=1e-5)
        if step == 0:
            gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in parameters.items()}
            assert near(statistics(gradients), record["stats.grad"], 1e-4, 1e-8, sizes)
        norm = torch.nn.utils.clip_grad_norm_(moving.values(), 1.0)
        assert float(norm) == pytest.approx(model.row["grad_norm"][step], rel=1e-4)
        optimizer.step()
        optimizer.zero_grad()
        if f"stats.after_{step + 1}" in record:
            assert near(statistics(parameters), record[f"stats.after_{step + 1}"], 1e-5, 2e-6 * (step + 1), sizes)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow) if case in REPEATS else case
        for case in CASES
        if case.startswith("sd_")
    ],
)
def test_merged_adapter_gives_the_same_prediction(case: str) -> None:
    model = Model(case)
    with torch.no_grad():
        output = model.output()
    for part, shape in model.shapes.items():
        modules: dict[str, AdapterModule] = read_off(model.networks[part], shape)
        assert set(modules) == set(shape.layers)
        bases = {name: m for name, m in model.networks[part].named_modules() if hasattr(m, "base_layer")}
        for name, module in bases.items():
            adapter = modules.get(name) or modules[f"text_model.{name}"]
            weight = module.base_layer.weight
            with torch.no_grad():
                weight.copy_(adapter.merge_into(weight))
            module.enable_adapters(False)
    with torch.no_grad():
        assert (model.output() - output).abs().max() <= 2e-5 * output.abs().max()
