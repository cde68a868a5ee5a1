"""Rows of flow-matching models: densities, shifts and weights of levels; settings of their families."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from mezzotint.cli import main
from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.diffusion.flow_objective import FlowObjective, objective_of
from mezzotint.diffusion.objective import StepDraws
from mezzotint.errors import WeightsError
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.stages import Noised
from mezzotint.tasks.assemble import family_class, open_files
from mezzotint.tasks.holding import forms_of_frozen
from mezzotint.weights.folder.model_folder import shipped_folder
from support.contradictions import contradiction
from support.flow_folders import tiny_a14b, tiny_flux2_dev
from support.sd_folder import edit

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow"
KLEIN = RECORDS / "flux2_klein" / "model"
FLUX = ("model.family=flux", "model.path=tiny-flux", "model.weights=random")


def objective(*words: str) -> FlowObjective:
    """The levels of a recipe; the model's file shifts by 3."""
    recipe = read_text("schema: 1", overrides=[*FLUX, *(f"objective.flow.{word}" for word in words)]).recipe
    opened = objective_of(recipe.objective, FlowSchedule.of({"shift": 3.0}, Tokens()), "flow")
    assert isinstance(opened, FlowObjective)
    return opened


def levels(*words: str, shape: tuple[int, ...] = (4, 16, 16)) -> Tensor:
    """4000 σ, by default not shifted."""
    plain = () if any(word.startswith("shift") for word in words) else ("shift=1.0",)
    return objective(*plain, *words).levels(StepDraws.at(0, 1, np.arange(4000), "cpu"), torch.Size(shape))


def middle(sigma: Tensor) -> float:
    """The share of levels in the middle third."""
    return float(((sigma > 1 / 3) & (sigma < 2 / 3)).float().mean())


# breaks if all densities are the same, or a name selects another one
@pytest.mark.effect("objective.flow.density")
def test_density_selects_the_noise_level_distribution() -> None:
    assert middle(levels("density=uniform")) == pytest.approx(1 / 3, abs=0.03)
    assert middle(levels("density=logit-normal")) == pytest.approx(0.51, abs=0.03)
    assert middle(levels("density=mode")) == pytest.approx(0.6, abs=0.03)
    assert torch.equal(levels("density=heavy-tail"), levels("density=mode"))
    assert torch.equal(levels("density=sigmoid"), levels("density=logit-normal"))
    assert middle(levels("density=beta")) > 0.4
    assert levels("density=log-snr").mean() == pytest.approx(0.5, abs=0.02)


# breaks if a higher value means less noise for logit-normal, as in diffusers, or more noise for log-snr
@pytest.mark.effect("objective.flow.mean")
def test_density_mean_shifts_noise_levels() -> None:
    assert levels("mean=1.0").mean() > levels().mean() + 0.1
    assert levels("density=log-snr", "mean=2.0").mean() < levels("density=log-snr").mean() - 0.1


# breaks if the standard deviation has no effect
@pytest.mark.effect("objective.flow.std")
def test_density_std_spreads_noise_levels() -> None:
    assert middle(levels("std=0.5")) > middle(levels()) > middle(levels("std=2.0"))


# breaks if the scale does not reach the density
@pytest.mark.effect("objective.flow.mode_scale")
def test_mode_scale_concentrates_levels_in_the_middle() -> None:
    assert middle(levels("density=mode", "mode_scale=1.29")) > middle(levels("density=mode", "mode_scale=0"))
    assert middle(levels("density=mode", "mode_scale=-0.8")) < middle(levels("density=mode", "mode_scale=0"))


# breaks if levels are not multiplied by the scale
@pytest.mark.effect("objective.flow.sigmoid_scale")
def test_sigmoid_scale_spreads_noise_levels() -> None:
    assert middle(levels("density=sigmoid", "sigmoid_scale=0.5")) > middle(levels("density=sigmoid"))


# breaks if the exponents are exchanged
@pytest.mark.effect("objective.flow.beta")
def test_beta_first_exponent_favours_noise() -> None:
    assert levels("density=beta", "beta=[3, 1]").mean() == pytest.approx(0.75, abs=0.02)


# breaks if levels of the table are not those of diffusers' scripts, or continuous ones are rounded
@pytest.mark.effect("objective.flow.grid")
def test_grid_is_a_thousand_levels_or_continuous() -> None:
    on_table, any_level = levels() * 1000, levels("grid=continuous") * 1000
    assert float((on_table - on_table.round()).abs().max()) < 1e-3 < float((any_level - any_level.round()).abs().max())


# breaks if the number is not s, or the table's own shift is lost
@pytest.mark.effect("objective.flow.shift")
def test_shift_moves_levels_towards_noise() -> None:
    plain = levels()
    for words, s in ((("shift=2.0",), 2.0), (("shift=table",), 3.0), (("shift=auto",), 3.0)):
        torch.testing.assert_close(levels(*words), s * plain / (1 + (s - 1) * plain), rtol=1e-5, atol=1e-6)
    larger, smaller = levels("shift=resolution", shape=(4, 128, 128)), levels("shift=resolution", shape=(4, 32, 32))
    assert larger.mean() > smaller.mean() > plain.mean()


# breaks if limits apply before the shift
@pytest.mark.effect("objective.flow.sigmas")
def test_sigma_limits_bound_trained_levels() -> None:
    sigma = levels("sigmas=[0.5, 0.75]", "shift=3.0")
    assert 0.5 - 1e-6 <= float(sigma.min()) < float(sigma.max()) <= 0.75 + 1e-6


# breaks if the error is always that of the velocity
@pytest.mark.effect("objective.flow.preconditioned")
def test_preconditioned_loss_is_weighted_by_sigma_squared() -> None:
    plain, ours = objective(), objective("preconditioned=true")
    x_0 = torch.randn(3, 4, 4, 4, generator=torch.Generator().manual_seed(0))
    noised = plain.noise(x_0, StepDraws.at(0, 1, np.arange(3), "cpu"))
    output = torch.zeros_like(x_0)
    losses = [each.loss(output, noised, torch.ones(3)).per_sample for each in (plain, ours)]
    torch.testing.assert_close(losses[1], losses[0] * noised.level**2, rtol=1e-4, atol=1e-6)


# breaks if the table is read from noise, or another weight than the nearest applies
@pytest.mark.effect("objective.weight_table")
def test_weights_come_from_a_table() -> None:
    def weights(table: str) -> list[float]:
        words = [*FLUX, "objective.weighting=table", f"objective.weight_table={table}"]
        chosen = objective_of(
            read_text("schema: 1", overrides=words).recipe.objective, FlowSchedule.of({}, Tokens()), "flow"
        )
        noised = replace(chosen.noise(x_0, StepDraws.at(0, 1, np.arange(5), "cpu")), level=sigma)
        result: list[float] = chosen.loss(x_0, noised, torch.ones(5)).weight.tolist()
        return result

    x_0, sigma = torch.zeros(5, 1, 1, 1), torch.tensor([0.0, 0.25, 0.4, 0.6, 1.0])
    assert weights("[1, 2, 3, 4]") == [1.0, 1.0, 2.0, 2.0, 4.0]
    assert weights("flex.1-alpha")[::4] == [pytest.approx(0.44726, abs=1e-5), pytest.approx(0.90571, abs=1e-5)]
    assert "needs objective.weight_table" in contradiction(*FLUX, "objective.weighting=table")
    assert "is for objective.weighting=table" in contradiction(*FLUX, "objective.weight_table=[1]")
    assert "is for flow-matching models" in contradiction("objective.weighting=bell")


def files(*words: str) -> Any:
    return open_files(resolve_paths(_reading(words)))


def _reading(words: tuple[str, ...]) -> Any:
    return read_text("schema: 1", overrides=["model.weights=random", *words])


# breaks if the pipeline's length is used whatever the recipe says
@pytest.mark.effect("model.sd3.t5_tokens")
def test_t5_token_limit_of_sd3() -> None:
    named = ("model.family=sd3", "model.path=tiny-sd3")
    assert files(*named).text_shape() == (77 + 256, 32)
    assert files(*named, "model.sd3.t5_tokens=77").text_shape() == (77 + 77, 32)
    assert files(*named).text_identity() != files(*named, "model.sd3.t5_tokens=77").text_identity()


# breaks if the pipeline's length is used whatever the recipe says
@pytest.mark.effect("model.flux.t5_tokens")
def test_t5_token_limit_of_flux() -> None:
    assert files(*FLUX).text_shape() == (512, 16)
    assert files(*FLUX, "model.flux.t5_tokens=77").text_shape() == (77, 16)


# breaks if training passes the pipeline's guidance scale, or none
@pytest.mark.effect("model.flux.guidance")
@pytest.mark.parametrize(("words", "scale"), [((), 1.0), (("model.flux.guidance=3.5",), 3.5)])
def test_guidance_is_a_training_input(words: tuple[str, ...], scale: float) -> None:
    reading = _reading((*FLUX, "model.flux.t5_tokens=16", *words))
    opened = files(*FLUX, "model.flux.t5_tokens=16", *words)
    family = family_class(reading.recipe).load(opened, ["text_encoder", "text_encoder_2"])
    condition = family.condition(family.encode_text(["a", "b"]), None)
    assert condition.vector is not None
    assert condition.vector.tolist() == [scale, scale]


# breaks if FLUX.2 dev ignores the setting, or Klein, which has no such input, accepts it
@pytest.mark.effect("model.flux2.guidance")
def test_guidance_is_a_training_input_of_flux2_dev(tmp_path: Path) -> None:
    dev = tiny_flux2_dev(KLEIN, tmp_path / "model")
    for words, scale in (((), 1.0), (("model.flux2.guidance=3.5",), 3.5)):
        named = ("model.family=flux2", f"model.path={dev}", "model.flux2.text_tokens=16", *words)
        opened = files(*named)
        opened.require_trainable()
        family = family_class(_reading(named).recipe).load(opened, ["text_encoder"])
        condition = family.condition(family.encode_text(["a", "b"]), None)
        assert condition.vector is not None
        assert condition.vector.tolist() == [scale, scale]
    with pytest.raises(WeightsError, match=r"set model\.flux2\.guidance=null") as caught:
        files("model.family=flux2", "model.path=tiny-flux2", "model.flux2.guidance=2").require_trainable()
    assert caught.value.code == "E1220"


# breaks if a distilled model is trained without permission, or not even with it
@pytest.mark.effect("model.flux.distilled", "model.z_image.distilled", "model.flux2.distilled", "model.krea2.distilled")
@pytest.mark.parametrize(("family", "file", "value"), [
    ("flux", "transformer/config.json", {"guidance_embeds": False}),
    ("flux2", "model_index.json", {"is_distilled": True}),
    ("krea2", "model_index.json", {"is_distilled": True}),
    ("z-image", "scheduler/scheduler_config.json", {"shift": 3.0}),
])  # fmt: skip
def test_distilled_models_need_distilled_true(tmp_path: Path, family: str, file: str, value: Any) -> None:
    folder = Path(shutil.copytree(shipped_folder(f"tiny-{family}"), tmp_path / "model"))
    edit(folder / file, **value)
    named = (f"model.family={family}", f"model.path={folder}")
    with pytest.raises(WeightsError, match="distilled=true"):
        files(*named).require_trainable()
    files(*named, f"model.{family.replace('-', '_')}.distilled=true").require_trainable()


# breaks if an unknown template is executed, or refused although it is to be ignored
@pytest.mark.effect("model.z_image.ignore_chat_template", "model.flux2.ignore_chat_template")
@pytest.mark.parametrize("family", ["z-image", "flux2"])
def test_unknown_chat_template_can_be_ignored(family: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shipped_folder(f"tiny-{family}"), tmp_path / "model"))
    (folder / "tokenizer" / "chat_template.jinja").write_text("{{ 1 }}")
    named = (f"model.family={family}", f"model.path={folder}")
    with pytest.raises(WeightsError, match="ignore_chat_template=true") as caught:
        files(*named).tokenizer("text_encoder")
    assert caught.value.code == "E1409"
    files(*named, f"model.{family.replace('-', '_')}.ignore_chat_template=true").tokenizer("text_encoder")


# breaks if the pipeline's length is used whatever the recipe says
@pytest.mark.effect(
    "model.z_image.text_tokens",
    "model.qwen_image.text_tokens",
    "model.flux2.text_tokens",
    "model.chroma.text_tokens",
    "model.krea2.text_tokens",
    "model.wan.text_tokens",
    "model.ltx.text_tokens",
)
@pytest.mark.parametrize("family", ["z-image", "qwen-image", "flux2", "chroma", "krea2", "wan", "ltx"])
def test_caption_token_limit_applies(family: str) -> None:
    named, section = (f"model.family={family}", f"model.path=tiny-{family}"), family.replace("-", "_")
    length, width = files(*named).text_shape()
    assert length == (128 if family == "ltx" else 512)
    assert files(*named, f"model.{section}.text_tokens=64").text_shape() == (64, width)
    assert files(*named).text_identity() != files(*named, f"model.{section}.text_tokens=64").text_identity()


# breaks if no clip or every clip is conditioned on its first frame, whatever the recipe says
@pytest.mark.effect("model.wan.first_frame_prob", "model.ltx.first_frame_prob")
@pytest.mark.parametrize("name", ["wan", "ltx"])
def test_first_frame_prob_conditions_a_share_of_clips(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(shipped_folder(f"tiny-{name}"), tmp_path / "model"))
    words = (
        f"model.family={name}",
        f"model.path={path}",
        "model.weights=random",
        f"model.{name}.first_frame_prob=0.25",
    )
    if name == "wan":
        with pytest.raises(WeightsError, match=r"remove model\.wan\.first_frame") as caught:
            files(*words).require_trainable()
        assert caught.value.code == "E1480"
        edit(path / "model_index.json", expand_timesteps=True)
    opened = files(*words)
    opened.require_trainable()
    family = family_class(_reading(words).recipe).load(opened, ["denoiser"])
    x = torch.zeros(200, family.grid.channels, 2, 2, 2)
    noised = Noised(x, x, x, x, torch.full((200,), 500.0), torch.full((200,), 0.5))
    begun = family.training_input(noised, StepDraws.at(0, 1, np.arange(200), "cpu")).has_first_frame
    assert begun is not None
    assert float(begun.float().mean()) == pytest.approx(0.25, abs=0.1)


# breaks if the second denoiser of the folder is read whatever file is named
@pytest.mark.effect("model.wan.low_noise")
def test_second_denoiser_comes_from_the_file(tmp_path: Path) -> None:
    folder = tiny_a14b(RECORDS / "wan" / "model", tmp_path / "model")
    assert main(["convert", str(folder), str(tmp_path / "other.safetensors"), "--part=denoiser"]) == 0
    named = ("model.family=wan", f"model.path={folder}", "model.weights=files")
    plain, other = files(*named), files(*named, f"model.wan.low_noise={tmp_path / 'other.safetensors'}")
    tables = [opened.network("denoiser_2").scale_shift_table for opened in (plain, other)]
    assert torch.equal(tables[1], plain.network("denoiser").scale_shift_table)
    assert not torch.equal(*tables)
    assert plain.fingerprint("denoiser_2") != other.fingerprint("denoiser_2")


# breaks if the pipeline's rate is passed whatever the recipe says
@pytest.mark.effect("model.ltx.frame_rate")
@torch.no_grad()
def test_ltx_receives_the_frame_rate() -> None:
    scales = []
    for words in ((), ("model.ltx.frame_rate=50",)):
        line = ("model.family=ltx", "model.path=tiny-ltx", "model.ltx.text_tokens=16", *words)
        family = family_class(_reading(line).recipe).load(files(*line))
        keep = lambda module, inputs, named: scales.append(named["rope_interpolation_scale"])  # noqa: E731
        family.parts()["denoiser"].register_forward_pre_hook(keep, with_kwargs=True)
        x = torch.zeros(1, 8, 2, 2, 2)
        noised = Noised(x, x, x, x, torch.tensor([500.0]), torch.tensor([0.5]))
        family.predict(noised, family.condition(family.encode_text(["a"]), None))
    assert scales == [(8 / 25, 32, 32), (8 / 50, 32, 32)]


# breaks if the clip does not start with the image, or the file does not record it
@pytest.mark.effect("sample.clip.first_frame")
def test_clip_starts_with_the_conditioning_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, latents = tmp_path / "red.png", []
    Image.new("RGB", (40, 40), (255, 0, 0)).save(path)
    kind: Any = family_class(_reading(("model.family=ltx", "model.path=tiny-ltx")).recipe)
    decode = kind.decode_media
    monkeypatch.setattr(kind, "decode_media", lambda self, drawn: latents.append(drawn) or decode(self, drawn))
    words = ["--prompt=a ball", "--steps=2", "--size=64x32", "model.weights=random", "sample.clip.frames=9"]
    for name, own in (("begun", [f"sample.clip.first_frame={path}"]), ("free", [])):
        assert main(["sample", "tiny-ltx", *words, *own, f"--out={tmp_path / name}"]) == 0
    red = torch.tensor([1.0, -1.0, -1.0]).view(1, 3, 1, 1).expand(1, 3, 32, 64)
    mean = kind.tiny(read_text("schema: 1").recipe.run.seed).encode_media(red).chunk(2, dim=1)[0]
    torch.testing.assert_close(latents[0][:, :, 0], mean)
    assert (latents[1][:, :, 0] - mean).abs().max() > 0.1
    (clip,) = (tmp_path / "begun").glob("*.mp4")
    with av.open(str(clip)) as file:
        facts = json.loads(file.metadata["comment"])
    assert facts["first_frame"] == str(path)
    assert len(facts["first_frame_sha256"]) == 64


# breaks if the pipeline's layers are used whatever the recipe says, or a layer that does not exist is accepted
@pytest.mark.effect("model.flux2.text_layers")
@torch.no_grad()
def test_klein_reads_the_named_text_encoder_layers() -> None:
    named = ("model.family=flux2", "model.path=tiny-flux2", "model.flux2.text_tokens=16")
    states = {}
    for words in ((), ("model.flux2.text_layers=[5, 18, 27]",)):
        opened = files(*named, *words)
        family = family_class(_reading((*named, *words)).recipe).load(opened, ["text_encoder"])
        states[opened.text_identity()] = family.encode_text(["a"]).states
    plain, other = states.values()
    width = plain.shape[-1] // 3
    assert not torch.equal(plain[..., :width], other[..., :width])
    assert torch.equal(plain[..., width:], other[..., width:])
    with pytest.raises(WeightsError, match="has layer 99") as caught:
        files(*named, "model.flux2.text_layers=[1, 2, 99]").text_identity()
    assert caught.value.code == "E1093"


# breaks if latents are always sampled, or their mean is used where a sample is requested
@pytest.mark.effect("objective.posterior")
def test_latents_are_a_sample_or_the_mean(prepare: Any) -> None:
    losses = {}
    for posterior in ("sample", "mean"):
        ready = prepare(objective__posterior=posterior)
        [batch] = ready.next_batches().batches
        keys = (batch.posterior_keys, batch.posterior_keys + 1)
        losses[posterior] = [
            ready.job.model.loss(replace(batch, posterior_keys=key), 0, 1, torch.device("cpu"))[0].per_sample.detach()
            for key in keys
        ]
    assert torch.equal(*losses["mean"])
    assert not torch.equal(*losses["sample"])
    words = ("objective.posterior=mean", "data.cache.latents=true", "data.cache.content=sample")
    assert "set data.cache.content=moments" in contradiction(*words)


# breaks if Wan's time embedding, modulation and norms use the smaller dtype whatever the recipe says
@pytest.mark.effect("run.keep_in_fp32")
@pytest.mark.parametrize(("value", "expected"), [("true", torch.float32), ("false", torch.bfloat16)])
def test_keep_in_fp32_modules_stay_float32(value: str, expected: torch.dtype) -> None:
    named = ("model.family=wan", "model.path=tiny-wan", "model.adapter.kind=lora", "run.precision=bf16")
    words = (*named, f"run.keep_in_fp32={value}")
    form = forms_of_frozen(_reading(words).recipe, ["denoiser"])["denoiser"]
    tensors = files(*words).network("denoiser", form).state_dict()
    assert tensors["scale_shift_table"].dtype == tensors["blocks.0.norm2.weight"].dtype == expected
    assert tensors["blocks.0.attn1.to_q.weight"].dtype == torch.bfloat16
