"""What lines of diffusers' DreamBooth scripts for models on straight paths do: runs made ready from them, on the tiny
folders of the real classes, and their objective beside diffusers' own functions, called as the scripts call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dialect_cases.diffusers_dreambooth_lora_flux2_klein import LINES as KLEIN
from dialect_cases.diffusers_dreambooth_lora_sd3 import LINES as SD3
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from diffusers.training_utils import (
    compute_density_for_timestep_sampling,
    compute_loss_weighting_for_sd3,
    generate_aspect_ratio_buckets,
)
from foreign_lines import ALONE
from ready_lines import batches, folder_of_model, line, pictures, ready

from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.diffusion.flow_objective import FlowObjective, objective_of
from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import latents_of
from mezzotint.tasks.reading import foreign
from mezzotint.weights.low_bit import LowBitLinear

PRIOR = ("--with_prior_preservation", "--class_data_dir=kind", "--class_prompt=a cat", "--num_class_images=2")
SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("sd3", {"weighting_scheme": "logit_normal"}),
    ("sd3", {"weighting_scheme": "logit_normal", "logit_mean": 0.8, "logit_std": 0.5, "precondition_outputs": 0}),
    ("lora-sd3", {"weighting_scheme": "sigma_sqrt"}),
    ("flux", {"weighting_scheme": "none"}),
    ("lora-flux", {"weighting_scheme": "logit_normal", "logit_mean": -0.4}),
    ("lora-flux2-klein", {"weighting_scheme": "cosmap"}),
    ("lora-qwen-image", {"weighting_scheme": "sigma_sqrt"}),
    ("lora-z-image", {"weighting_scheme": "mode", "mode_scale": 1.0}),
]


def objective_from(dialect: str, said: dict[str, Any]) -> tuple[FlowObjective, FlowMatchEulerDiscreteScheduler]:
    """Ours of a line, and the scheduler that its script looks levels up in."""
    name = f"diffusers-dreambooth-{dialect}"
    words = line(name, *(f"--{flag}={value}" for flag, value in said.items()))
    recipe = foreign.reading(name, words, (), ALONE).recipe
    scheduler: Any = FlowMatchEulerDiscreteScheduler.from_pretrained(folder_of_model(name) / "scheduler")
    config = json.loads((folder_of_model(name) / "scheduler" / "scheduler_config.json").read_text())
    opened = objective_of(recipe.objective, FlowSchedule.of(config, Tokens()), "flow")
    assert isinstance(opened, FlowObjective)
    return opened, scheduler


@pytest.mark.parametrize(("dialect", "said"), SCHEMES, ids=lambda each: each if isinstance(each, str) else None)
def test_levels_are_drawn_and_losses_weighed_as_the_script_does(dialect: str, said: dict[str, Any]) -> None:
    objective, scheduler = objective_from(dialect, said)
    scheme, many = said["weighting_scheme"], 20_000
    u = compute_density_for_timestep_sampling(
        scheme, many, said.get("logit_mean", 0.0), said.get("logit_std", 1.0), said.get("mode_scale", 1.29),
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    theirs = scheduler.timesteps[(u * 1000).long()] / 1000
    ours = objective.levels(StepDraws.at(0, 1, np.arange(many), "cpu"), torch.Size((4, 8, 8)))
    assert torch.cdist(ours[:500, None], scheduler.sigmas[:, None]).min(1).values.max() < 1e-5, "on their table"
    shares = torch.linspace(0.05, 0.95, 19)
    torch.testing.assert_close(ours.quantile(shares), theirs.quantile(shares), atol=0.02, rtol=0)

    x_0, predicted = torch.randn(2, 3, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    noised = objective.noise(x_0, StepDraws.at(0, 1, np.arange(3), "cpu"))
    sigmas = noised.level[:, None, None, None]
    weighting = compute_loss_weighting_for_sd3(scheme, sigmas)
    is_preconditioned = "sd3" in dialect and said.get("precondition_outputs", 1)
    target = x_0 if is_preconditioned else noised.noise - x_0
    output = predicted * -sigmas + noised.x_t if is_preconditioned else predicted
    expected = (weighting * (output - target) ** 2).flatten(1).mean(1)
    loss = objective.loss(predicted, noised, torch.ones(3))
    torch.testing.assert_close(loss.per_sample * loss.weight, expected, rtol=1e-4, atol=1e-5)


def test_shapes_of_buckets_are_the_scripts_own() -> None:
    for side in (512, 1024, 768):
        sizes = KLEIN.translate("--use_aspect_ratio_buckets", f"--resolution={side}").settings["data"]["buckets"]
        assert [tuple(pair) for pair in sizes["sizes"]] == generate_aspect_ratio_buckets(side)


def test_what_has_no_effect_or_is_better_than_there_is_said(tmp_path: Path) -> None:
    for lines, words, sentence in (
        (SD3, ["--logit_std=2", "--weighting_scheme=mode"], "--logit_std: without --weighting_scheme=logit_normal"),
        (SD3, ["--cache_latents"], "there, both by the number of the step"),
        (SD3, ["--weighting_scheme=cosmap", *PRIOR], "there, class pictures have that of the subject's"),
        (SD3, [], "there, once for the whole run"),
        (KLEIN, [], "as the model's pipeline reads it; there, 10, 20 and 30"),
        (KLEIN, [*PRIOR], "there, as many as the subject has"),
        (KLEIN, ["--final_validation_prompt=a", "--skip_final_inference"], "--skip_final_inference counts"),
        (KLEIN, ["--bnb_quantization_config_path=bits.json"], "bnb_4bit_quant_type in bits.json: nf4 is taken"),
        (KLEIN, ["--mixed_precision=bf16"], "kept in float32"),
    ):
        Path("bits.json").write_text('{"load_in_4bit": true}')
        assert sentence in lines.said(*words), words
    assert "that of the subject's" not in KLEIN.said("--weighting_scheme=cosmap", *PRIOR)
    assert "once for the whole run" not in SD3.said("--center_crop")
    assert "10, 20 and 30" not in KLEIN.said("--text_encoder_out_layers", "9", "18", "27")


def test_a_file_for_bitsandbytes_says_one_of_two() -> None:
    flag = "--bnb_quantization_config_path=bits.json"
    for text, told in (
        ('{"load_in_8bit": true}', None),
        ('{"load_in_8bit": true, "load_in_4bit": true}', "--bnb_quantization_config_path"),
        ("{}", "--bnb_quantization_config_path"),
        ('{"load_in_5bit": true}', "load_in_5bit in bits.json"),
    ):
        Path("bits.json").write_text(text)
        if told is None:
            assert KLEIN.changed(flag) == {"run.frozen_dtype": "int8"}
        else:
            assert told in dict(KLEIN.refusal(flag))


def test_layers_are_named_as_peft_reads_them() -> None:
    def targets(*words: str) -> list[str]:
        return list(SD3.translate(*words).settings["model"]["adapter"]["targets"])

    assert targets("--lora_layers=to_k, norm_out.linear") == ["denoiser/*.to_k", "denoiser/norm_out.linear"]
    assert targets("--lora_layers=to_k", "--lora_blocks=1") == ["denoiser/transformer_blocks.1.to_k"]


# --- runs made ready --------------------------------------------------------------------------------------------------


def moved(job: Any, step: Any) -> dict[str, float]:
    """How far a step has moved each tensor at most."""
    before = {name: tensor.detach().clone() for name, tensor in job.model.update.masters.items()}
    job.trainer.step(step).resolve(0)
    return {name: float((job.model.update.masters[name].detach() - old).abs().max()) for name, old in before.items()}


def told(job: Any) -> list[dict[str, Any]]:
    """What the denoiser is told from now on."""
    calls: list[dict[str, Any]] = []
    job.model.family.parts()["denoiser"].register_forward_pre_hook(
        lambda module, inputs, named: calls.append(dict(named)), with_kwargs=True
    )
    return calls


def test_a_line_of_flux_trains_its_layers_and_clip_at_rates_of_their_own() -> None:
    """AdamW's first step is as long as the rate, which shows batch and accumulation in it."""
    pictures(Path("cat"), 20, 90, 160, 230)
    words = (
        "--train_text_encoder", "--text_encoder_lr=1e-3", "--scale_lr", "--gradient_accumulation_steps=2",
        "--learning_rate=1e-3", "--guidance_scale=2.5", "--lora_layers=attn.to_k,proj_out", "--use_8bit_adam",
        "--adam_weight_decay_text_encoder=0.5", "--rank=2", "--lora_alpha=6", "--max_grad_norm=1e9",
    )  # fmt: skip
    with ready("diffusers-dreambooth-lora-flux", *words) as job:
        assert job.model.optim.optimizer.kind == "adamw", "eight bits need a GPU, and the run says so"
        calls, lengths = told(job), moved(job, batches(job))
        decay = {group.part: group.weight_decay for group in job.model.update.groups}
        assert decay == {"denoiser": 1e-4, "text_encoder": 0.5}
        parts = {name.partition("/")[0] for name in lengths}
        assert parts == {"denoiser", "text_encoder"}
        layers = {name.partition("/")[2].partition(".lora")[0] for name in lengths if name.startswith("denoiser")}
        assert {layer.rpartition(".")[2] for layer in layers} == {"to_k", "proj_out"}
        assert "proj_out" in layers, "that of the model itself, as well as those of its blocks"
        for part, rate in (("denoiser", 1e-3 * 2 * 2), ("text_encoder", 1e-3)):
            ups = [length for name, length in lengths.items() if name.startswith(part) and "lora_up" in name]
            assert max(ups) == pytest.approx(rate, rel=1e-2), part
        assert {float(value) for call in calls for value in call["guidance"]} == {2.5}
        assert {call["encoder_hidden_states"].shape[1] for call in calls} == {48}
        assert {call["hidden_states"].shape[0] for call in calls} == {2}
        [lora] = {m.scaling["default"] for m in job.model.family.parts()["denoiser"].modules() if hasattr(m, "lora_A")}
        assert lora == 3.0


def test_a_line_of_klein_pairs_pictures_and_leaves_out_captions_of_the_subject_alone() -> None:
    """Latents are the mean of the autoencoder's answer, and the two halves have weights of their own."""
    pictures(Path("cat"), 20, 90)
    pictures(Path("kind"), 160, 230)
    words = (*PRIOR, "--prior_loss_weight=0.25", "--caption_dropout=1", "--random_flip", "--train_batch_size=1")
    with ready("diffusers-dreambooth-lora-flux2-klein", *words) as job:
        step = batches(job)
        [batch] = step.batches
        assert batch.captions == ("", "a cat")
        assert batch.is_class is not None
        assert batch.is_class.tolist() == [False, True]
        assert batch.weight.tolist() == [2.0, 0.5], "1 and a quarter, of halves of two pictures"
        family, device = job.model.family, torch.device("cpu")
        x_0 = latents_of(family, batch, device, job.model.objective.settings.posterior)
        assert torch.equal(x_0, family.encode_media(batch.pixels).chunk(2, dim=1)[0])
        assert not torch.equal(x_0, latents_of(family, batch, device))
        assert max(moved(job, step).values()) == pytest.approx(1e-2, rel=1e-2)


@pytest.mark.slow
def test_a_line_of_sd3_trains_blocks_by_prodigy() -> None:
    pictures(Path("cat"), 20, 90)
    words = ("--optimizer=prodigy", "--learning_rate=1", "--lora_blocks=0,2", "--lora_layers=attn.to_q")
    with ready("diffusers-dreambooth-lora-sd3", *words) as job:
        assert job.model.optim.optimizer.kind == "prodigy"
        lengths = moved(job, batches(job))
        blocks = {name.partition(".lora")[0] for name in lengths}
        assert blocks == {f"denoiser/transformer_blocks.{block}.attn.to_q" for block in (0, 2)}
        assert 0 < max(lengths.values()) < 1e-4, "its first rate is a millionth"


@pytest.mark.slow
def test_captions_of_a_table_take_the_place_of_the_prompt() -> None:
    """Cached and shuffled, a picture meets its own caption."""
    pictures(Path("table"), 20, 90, 160, 230)
    rows = [{"picture": f"{shade:03}.png", "words": f"shade {shade}"} for shade in (20, 90, 160, 230)]
    Path("table/metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = (
        "--dataset_name=table", "--image_column=picture", "--caption_column=words", "--repeats=2", "--cache_latents",
        "--center_crop", "--num_train_epochs=2", "--train_batch_size=4",
    )  # fmt: skip
    with ready("diffusers-dreambooth-lora-qwen-image", *words) as job:
        assert set(job.model.family.parts()) == {"denoiser"}, "both encoders are let go"
        pairs = set()
        for step, _ in zip(job.trainer.batches, range(2), strict=False):
            for batch in step.batches:
                pairs |= {(Path(key).name, caption) for key, caption in zip(batch.keys, batch.captions, strict=True)}
                assert batch.text is not None
                x_0 = latents_of(job.model.family, batch, torch.device("cpu"), "mean")
                assert len(torch.unique(x_0.flatten(1), dim=0)) == len(set(batch.keys))
        assert pairs == {(f"{shade:03}.png", f"shade {shade}") for shade in (20, 90, 160, 230)}


@pytest.mark.slow
def test_offloading_encodes_pictures_ahead_in_their_own_shapes() -> None:
    pictures(Path("cat"), 20, 90, size=(48, 32))
    pictures(Path("cat"), 160, 230, size=(32, 48))
    words = ("--use_aspect_ratio_buckets", "--aspect_ratio_buckets=32,48;48,32", "--offload", "--repeats=3")
    ours = ("model.z_image.distilled=true",)
    with ready("diffusers-dreambooth-lora-z-image", *words, ours=ours) as job:
        assert set(job.model.family.parts()) == {"denoiser"}
        shapes = set()
        for step, _ in zip(job.trainer.batches, range(2), strict=False):
            shapes |= {tuple(batch.moments.shape[-2:]) for batch in step.batches if batch.moments is not None}
        assert len(shapes) == 2
        assert {(width, height) for height, width in shapes} == shapes, "one lies, the other stands"


@pytest.mark.slow
def test_the_frozen_model_is_held_in_eight_bits() -> None:
    pytest.importorskip("torchao")
    pictures(Path("cat"), 20, 90)
    Path("bits.json").write_text('{"load_in_8bit": true}')
    words = ("--bnb_quantization_config_path=bits.json", "--mixed_precision=bf16")
    with ready("diffusers-dreambooth-lora-qwen-image", *words) as job:
        held = [m for m in job.model.family.parts()["denoiser"].modules() if isinstance(m, LowBitLinear)]
        assert held
        assert {m.low_bit for m in held} == {"int8"}
        assert max(moved(job, batches(job)).values()) > 0
