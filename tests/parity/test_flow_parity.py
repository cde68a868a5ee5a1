"""Flow-matching families compared with records of diffusers' pipelines and networks on tiny folders: text, latents, a
training step, four sampling steps."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion.flow_objective import FlowObjective, objective_of
from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import ModelFamily, posterior_sample
from mezzotint.sampling import sample as sampling
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.settings.sections.flow import FlowSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Framing, Noised, TextEmbedding

DATA = Path(__file__).parent / "data" / "flow"
OWN: dict[str, dict[str, Any]] = {
    "sd3": {"sd3": {"t5_tokens": 77}},
    "flux": {},
    "chroma": {},
    "z_image": {},
    "qwen_image": {},
    "krea2": {},
    "flux2_klein": {},
    "wan": {},
    "ltx": {},
}
"""Families by their records, with the settings that the folder needs."""


@dataclass(frozen=True)
class Records:
    """numbers, tensors: see `data/README.md`. family: of the folder that was recorded."""

    family: ModelFamily
    numbers: dict[str, Any]
    tensors: dict[str, Tensor]

    def text(self, start: str = "text") -> TextEmbedding:
        """As recorded, filled up and masked where it is ragged."""
        if f"{start}.embeds" in self.tensors:
            mask = self.tensors.get(f"{start}.mask")
            return TextEmbedding(self.tensors[f"{start}.embeds"], mask, self.tensors.get(f"{start}.pooled"))
        each = [self.tensors[f"{start}.embeds.{i}"] for i in range(2) if f"{start}.embeds.{i}" in self.tensors]
        states = torch.nn.utils.rnn.pad_sequence(each, batch_first=True)
        lengths = torch.tensor([len(one) for one in each])
        return TextEmbedding(states, (torch.arange(states.shape[1]) < lengths[:, None]).long())

    @property
    def noised(self) -> Noised:
        """Of the recorded step."""
        draws = StepDraws(torch.zeros(2, dtype=torch.int64), *([None] * 4))  # type: ignore[arg-type]
        sigma = torch.tensor(self.numbers["step"]["sigmas"])
        drawn = self.objective().noise_at(self.tensors["vae.latents"], draws, sigma, sigma)
        eps, at = self.tensors["step.noise"], sigma.view(-1, *[1] * (drawn.x_0.ndim - 1))
        x_t = (1 - at) * drawn.x_0 + at * eps
        return Noised(drawn.x_0, eps, x_t, x_t, drawn.model_t, drawn.level)

    def objective(self, **settings: Any) -> FlowObjective:
        objective = objective_of(ObjectiveSettings(**settings), self.family.schedule, self.family.prediction)
        assert isinstance(objective, FlowObjective)
        return objective

    def velocity(self) -> Tensor:
        framing = None
        if "step.guidance" in self.tensors:
            nothing = torch.zeros(2, 2, dtype=torch.int64)
            framing = Framing(nothing, nothing, nothing, guidance=self.tensors["step.guidance"])
        return self.family.predict(self.noised, self.family.condition(self.text(), None, framing))


@pytest.fixture(scope="module", params=OWN)
def records(request: pytest.FixtureRequest) -> Records:
    place, name = DATA / request.param, request.param
    name = name.removesuffix("_klein")
    family = importlib.import_module(f"mezzotint.families.{name}").Family
    settings = ModelSettings(family=name.replace("_", "-"), path=place / "model", **OWN[request.param])
    numbers = json.loads((place / "records.json").read_text())
    tensors = load_file(place / "records.safetensors")
    if name == "qwen_image":  # recorded as clips of one frame
        tensors = {key: tensor[:, :, 0] if tensor.ndim == 5 else tensor for key, tensor in tensors.items()}
    return Records(family.of(settings), numbers, tensors)


def near(ours: Tensor, theirs: Tensor, relative: float) -> bool:
    """Whether two tensors differ by no more than a share of their size."""
    assert ours.shape == theirs.shape
    return float((ours.double() - theirs.double()).norm()) <= relative * max(float(theirs.double().norm()), 1e-12)


@torch.no_grad()
def test_text_embeddings_equal_the_record(records: Records) -> None:
    for start, captions in (("text", records.numbers["prompts"]), ("text_empty", [""])):
        recorded, ours = records.text(start), records.family.encode_text(captions)
        reach = recorded.states.shape[1]
        assert near(ours.states[:, :reach], recorded.states, 1e-5)
        assert not ours.states[:, reach:].any()
        if recorded.mask is not None and ours.mask is not None:
            assert torch.equal(ours.mask[:, :reach], recorded.mask.long())
            assert not ours.mask[:, reach:].any()
        if recorded.pooled is not None and ours.pooled is not None:
            assert near(ours.pooled, recorded.pooled, 1e-5)


@torch.no_grad()
def test_latents_and_decoded_pixels_equal_the_record(records: Records) -> None:
    tensors = records.tensors
    moments = records.family.encode_media(tensors["vae.pixels"].float() / 127.5 - 1)
    assert near(moments, torch.cat([tensors["vae.scaled_mean"], tensors["vae.scaled_std"]], dim=1), 1e-5)
    assert near(posterior_sample(moments, tensors["vae.eps"]), tensors["vae.latents"], 1e-5)
    decoded = records.family.decode_media(tensors["vae.latents"])[..., ::4, ::4]
    assert near(decoded, tensors["vae.decoded_every_4th"].clamp(-1, 1), 1e-5)


@torch.no_grad()
def test_inputs_and_prediction_of_a_step_equal_the_record(records: Records) -> None:
    tensors, noised = records.tensors, records.noised
    assert near(noised.x_t, tensors["step.noisy"], 1e-6)
    assert near(records.objective().target(noised), tensors["step.target"], 1e-6)
    times = torch.tensor(records.numbers["step"]["timesteps"])
    assert near(noised.model_t, times, 1e-6)
    assert near(records.velocity(), tensors["step.velocity"], 1e-5)


LOSSES: dict[str, dict[str, Any]] = {
    "none": {},
    "sigma_sqrt": {"weighting": "sigma-sqrt"},
    "cosmap": {"weighting": "cosmap"},
    "precondition_outputs": {"flow": FlowSettings(preconditioned=True)},
    "precondition_outputs+sigma_sqrt": {"flow": FlowSettings(preconditioned=True), "weighting": "sigma-sqrt"},
}


@torch.no_grad()
def test_losses_equal_the_record(records: Records) -> None:
    velocity = records.velocity()
    for name, settings in LOSSES.items():
        loss = records.objective(**settings).loss(velocity, records.noised, torch.ones(2))
        assert float(loss.total) / 2 == pytest.approx(records.numbers["step"]["loss"][name], rel=1e-5), name


def test_weight_update_equals_the_record(records: Records) -> None:
    numbers, denoiser = records.numbers["step"], records.family.parts()["denoiser"]
    before = {name: tensor.clone() for name, tensor in denoiser.state_dict().items()}
    loss = records.objective().loss(records.velocity(), records.noised, torch.ones(2)).total / 2
    denoiser.zero_grad()
    loss.backward()
    parameters = dict(denoiser.named_parameters())
    without = [name for name, parameter in parameters.items() if parameter.grad is None]
    assert sorted(without) == sorted(numbers["without_gradient"])
    for name, about in records.numbers["parameters"].items():
        gradient = parameters[name].grad
        norm = 0.0 if gradient is None else float(gradient.norm())
        assert norm == pytest.approx(about["grad_norm"] or 0.0, rel=1e-4, abs=1e-6), name
    for name, tensor in records.tensors.items():
        if name.startswith("grad."):
            gradient = parameters[name.removeprefix("grad.")].grad
            assert gradient is not None, name
            assert near(gradient, tensor, 1e-4), name
    norm = torch.nn.utils.clip_grad_norm_(denoiser.parameters(), numbers["optimizer"]["clip"])
    assert float(norm) == pytest.approx(numbers["grad_norm"], rel=1e-5)
    chosen = {key: numbers["optimizer"][key] for key in ("lr", "betas", "weight_decay", "eps")}
    torch.optim.AdamW(denoiser.parameters(), **chosen).step()
    for name, tensor in records.tensors.items():
        if name.startswith("after."):
            apart = (parameters[name.removeprefix("after.")].detach() - tensor).abs()
            assert float(apart.max()) <= 2 * chosen["lr"], name
            assert float(apart.mean()) < 1e-5, name
    with torch.no_grad():
        again = records.objective().loss(records.velocity(), records.noised, torch.ones(2)).total / 2
    assert float(again) == pytest.approx(numbers["loss_after_step"], rel=1e-4)
    denoiser.load_state_dict(before)
    denoiser.zero_grad(set_to_none=True)


def test_four_sampling_steps_end_at_the_recorded_latents(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, tensors = records.numbers["sample"], records.tensors
    guidance = numbers["guidance"]
    scale = guidance.get("true_cfg_scale", guidance.get("guidance_scale"))
    height, width = numbers["size"]
    monkeypatch.setattr(sampling, "initial_noise", lambda *_: tensors["sample.noise"])
    requests = [
        Request(prompt, Size(width, height, numbers["frames"]), negative=guidance.get("negative_prompt", ""), index=i)
        for i, prompt in enumerate(records.numbers["prompts"])
    ]
    solver = "unipc" if "flow_shift" in records.family.schedule.config else "euler"  # type: ignore[attr-defined]
    settings = SampleSettings(steps=numbers["steps"], guidance=(scale,), solver=solver)
    how = Sampling(records.family.schedule, records.family.prediction, "cpu", settings)
    assert near(sampling.sample_latents(records.family, requests, how), tensors["sample.latents"], 1e-4)
