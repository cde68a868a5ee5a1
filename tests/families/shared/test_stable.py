"""Exports: a complete folder that the stock pipeline opens offline, with the trained weights and the rest untouched."""

from __future__ import annotations

import json
import os
from itertools import accumulate
from pathlib import Path

import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from safetensors.torch import load_file
from torch.autograd.profiler import profile

from mezzotint import fault_injection
from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from support.model_export import export_model, load_model, tiny_model
from support.sd_folder import FOLDER, opened, trained


@pytest.fixture(autouse=True, scope="module")
def _of_two_levels(shallow_sd: Path) -> None:
    """Exports need no UNet of four levels."""
    globals()["FOLDER"] = shallow_sd


@pytest.fixture
def family() -> Family:
    return load_model(Family, ModelSettings(path=FOLDER))


def test_diffusers_pipeline_opens_an_export_offline(family: Family, tmp_path: Path) -> None:
    weights = trained(family, "denoiser", "text_encoder")
    pipeline = opened(export_model(family, tmp_path / "out", weights))
    for part in ("denoiser", "text_encoder"):
        state = {k.removeprefix(f"{part}/"): v for k, v in weights.items() if k.startswith(f"{part}/")}
        family.parts()[part].load_state_dict(state)
    assert all(torch.equal(v, weights[f"denoiser/{k}"]) for k, v in pipeline.unet.state_dict().items())
    with torch.no_grad():
        states = pipeline.encode_prompt("a red circle", "cpu", 1, False)[0]
        assert torch.equal(states, family.encode_text(["a red circle"]).states)
    reloaded = load_model(Family, ModelSettings(path=tmp_path / "out"))
    for part, module in reloaded.parts().items():
        for name, tensor in family.parts()[part].state_dict().items():
            assert torch.equal(module.state_dict()[name], tensor)


def test_untrained_parts_are_copied_byte_for_byte(tmp_path: Path) -> None:
    family = load_model(Family, ModelSettings(path=FOLDER), only=["denoiser"])
    out = export_model(family, tmp_path / "out", trained(family, "denoiser"))
    for folder in ("vae", "text_encoder", "tokenizer"):
        for path in (FOLDER / folder).iterdir():
            assert (out / folder / path.name).read_bytes() == path.read_bytes()


def test_partly_trained_part_is_completed_from_its_base(family: Family, tmp_path: Path) -> None:
    weights = {k: v for k, v in trained(family, "denoiser").items() if "attn2" in k}
    out = export_model(family, tmp_path / "out", weights)
    base = load_file(FOLDER / "unet" / "diffusion_pytorch_model.safetensors")
    written = load_file(out / "unet" / "diffusion_pytorch_model.safetensors")
    assert written.keys() == base.keys()
    for name, tensor in written.items():
        assert torch.equal(tensor, weights.get(f"denoiser/{name}", base[name]))


def test_random_model_is_exported_with_all_parts(tmp_path: Path) -> None:
    settings = ModelSettings(path=shipped_folder("tiny-sd"), weights="random")
    family = load_model(Family, settings, only=["denoiser"], seed=4)
    out = export_model(family, tmp_path / "out", trained(family, "denoiser"))
    pipeline = opened(out)
    everything = load_model(Family, settings, seed=4)
    for name, tensor in everything.parts()["vae"].state_dict().items():
        assert torch.equal(pipeline.vae.state_dict()[name], tensor)
    again = load_model(Family, ModelSettings(path=out))
    assert torch.equal(again.encode_text(["a"]).states, everything.encode_text(["a"]).states)


def test_tiny_model_is_exported_with_its_own_configuration(tmp_path: Path) -> None:
    tiny = tiny_model(Family)
    out = export_model(tiny, tmp_path / "out", {})
    again = load_model(Family, ModelSettings(path=out))
    assert torch.equal(again.encode_text(["a"]).states, tiny.encode_text(["a"]).states)


@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_trained_parts_are_written_in_the_requested_dtype(
    family: Family, tmp_path: Path, name: str, dtype: torch.dtype
) -> None:
    weights = trained(family, "denoiser")
    out = export_model(family, tmp_path / "out", weights, dtype=name)
    written = load_file(out / "unet" / "diffusion_pytorch_model.safetensors")
    assert all(torch.equal(tensor, weights[f"denoiser/{k}"].to(dtype)) for k, tensor in written.items())


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_half_precision_export_opens_and_samples_without_a_dtype(family: Family, tmp_path: Path, name: str) -> None:
    out = export_model(family, tmp_path / "out", trained(family, "denoiser", "text_encoder"), dtype=name)
    pipeline = opened(out)
    assert {part.dtype for part in (pipeline.unet, pipeline.text_encoder, pipeline.vae)} == {torch.float32}
    pipeline.set_progress_bar_config(disable=True)
    drawn = pipeline("a red circle", num_inference_steps=1, height=64, width=64, output_type="np").images
    assert drawn.shape == (1, 64, 64, 3)


def test_changed_prediction_type_is_written_to_the_scheduler(family: Family, tmp_path: Path) -> None:
    out = export_model(family, tmp_path / "out", trained(family, "denoiser"), prediction="v")
    config = json.loads((out / "scheduler" / "scheduler_config.json").read_text())
    base = json.loads((FOLDER / "scheduler" / "scheduler_config.json").read_text())
    assert config == base | {"prediction_type": "v_prediction"}
    assert load_model(Family, ModelSettings(path=out), only=[]).prediction == "v"


def test_unchanged_scheduler_is_kept(family: Family, tmp_path: Path) -> None:
    out = export_model(family, tmp_path / "out", trained(family, "denoiser"))
    config = json.loads((out / "scheduler" / "scheduler_config.json").read_text())
    assert config == json.loads((FOLDER / "scheduler" / "scheduler_config.json").read_text())


def test_zero_terminal_snr_exports_a_matching_scheduler(family: Family, tmp_path: Path) -> None:
    schedule = family.schedule.rescale_to_zero_terminal_snr()
    out = export_model(family, tmp_path / "out", trained(family, "denoiser"), schedule=schedule, prediction="v")
    scheduler = opened(out).scheduler
    assert isinstance(scheduler, DDIMScheduler)
    assert scheduler.config.timestep_spacing == "trailing"
    assert scheduler.config.clip_sample is False
    assert float(scheduler.alphas_cumprod[-1]) == 0
    torch.testing.assert_close(scheduler.alphas_cumprod, schedule.alpha_bar, rtol=1e-5, atol=1e-7)
    assert load_model(Family, ModelSettings(path=out), only=[]).schedule.zero_terminal


def test_non_finite_weights_are_not_exported(family: Family, tmp_path: Path) -> None:
    weights = trained(family, "denoiser")
    weights["denoiser/conv_in.bias"][0] = float("nan")
    with pytest.raises(WeightsError, match=r"conv_in\.bias") as caught:
        export_model(family, tmp_path / "out", weights)
    assert caught.value.code == "E1403"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("point", ["export.begin", "export.renamed"])
def test_both_probes_are_reached(family: Family, tmp_path: Path, point: str) -> None:
    fault_injection.arm(f"{point}:raise")
    try:
        with pytest.raises(RuntimeError, match=point):
            export_model(family, tmp_path / "out", trained(family, "denoiser"))
    finally:
        fault_injection.arm("")
    assert (tmp_path / "out").exists() == (point == "export.renamed")


def test_export_holds_one_tensor_in_memory_at_a_time(family: Family, tmp_path: Path) -> None:
    """Networks in a smaller dtype with trained float32 weights, as after training in bf16."""
    weights = trained(family, "denoiser")
    for module in family.parts().values():
        module.bfloat16()
    total, largest = sum(t.nbytes for t in weights.values()), max(t.nbytes for t in weights.values())
    with profile(profile_memory=True) as seen:
        export_model(family, tmp_path / "out", weights, dtype="fp16")
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    taken = max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))
    assert taken <= 2 * largest < total / 5
    written = load_file(tmp_path / "out" / "unet" / "diffusion_pytorch_model.safetensors")
    assert all(torch.equal(t, weights[f"denoiser/{n}"].half()) for n, t in written.items())
