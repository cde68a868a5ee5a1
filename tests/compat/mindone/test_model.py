"""What the `model` of a YAML of MindONE's becomes: the document's, those that ship, each class that may be named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mindone_yaml import DOCUMENT, PLAIN, notes, problems, recipe, refused, replaced

from mezzotint.compat.mindone.adam_weight_decay_settings import AdamWeightDecay
from mezzotint.compat.mindone.dialect import SHIPPED


def test_documented_yaml_is_translated() -> None:
    translated = recipe(DOCUMENT)
    assert (translated.model.family, translated.model.attention, translated.model.depth) == ("sdxl", "auto", None)
    assert (translated.run.vae_dtype, translated.run.gradient_checkpointing.enabled) == ("fp32", True)
    assert (translated.objective.noise_offset, translated.objective.noise_offset_per) == (0.05, "sample")
    assert translated.optim.optimizer == AdamWeightDecay(
        betas=(0.9, 0.999), weight_decay=0.01, eps=1e-6, no_decay=("@mindone",)
    )
    schedule = translated.optim.schedule
    assert (translated.optim.lr, schedule.kind, schedule.warmup_steps) == (1e-6, "constant", 500)
    assert (translated.data.batch_size, translated.run.steps, translated.data.workers) == (1, 100_000, 2)
    data = translated.data
    assert (data.resolution, data.buckets.shape, data.crop) == ((1024,), "square", "random")
    assert (data.resize, data.antialias) == ("bicubic", False)
    assert "SDXL's 0.13025 is used" in notes(DOCUMENT)


@pytest.mark.parametrize("name", ["sd_xl_base_finetune_910b", "sd_xl_base_finetune_910b_fa",
                                  "sd_xl_base_finetune_multi_graph_910b"])  # fmt: skip
def test_shipped_yaml_files_give_the_documented_recipe(name: str) -> None:
    translated = recipe((SHIPPED / f"{name}.yaml").read_text("utf-8"))
    assert translated == recipe(DOCUMENT)
    assert translated.optim.lr == 1e-6


def test_class_paths_of_stability_are_accepted() -> None:
    """There, sampler and weighting of sigmas are part of the loss."""
    moved = re.sub(r"    sigma_sampler_config:\n(?:      .*\n)+\n", "", PLAIN)
    moved = replaced("        weighting_config:\n          target: gm.modules.diffusionmodules.denoiser_weighting."
                     "EpsWeighting\n", "", moved)  # fmt: skip
    inside = """        loss_type: l2
        loss_weighting_config:
          target: sgm.modules.diffusionmodules.loss_weighting.EpsWeighting
        sigma_sampler_config:
          target: sgm.modules.diffusionmodules.sigma_sampling.DiscreteSampling
          params:
            num_idx: 1000
"""
    moved = replaced("        type: l2\n", inside, moved).replace("gm.", "sgm.").replace("ssgm.", "sgm.")
    assert recipe(moved) == recipe(PLAIN)


_EDM = """
    denoiser_config:
      target: gm.modules.diffusionmodules.denoiser.Denoiser
      params:
        weighting_config:
          target: gm.modules.diffusionmodules.denoiser_weighting.EDMWeighting
          params: {sigma_data: 0.5}
        scaling_config:
          target: gm.modules.diffusionmodules.denoiser_scaling.EDMScaling
          params: {sigma_data: 0.5}
    sigma_sampler_config:
      target: gm.modules.diffusionmodules.sigma_sampling.EDMSampling
      params: {p_mean: -1.0, p_std: 1.5}
"""


def with_edm(edm: str = _EDM) -> str:
    text = re.sub(r"    (denoiser|sigma_sampler)_config:\n(?:      .*\n)+\n", "", PLAIN)
    return replaced("\n    loss_fn_config:", f"{edm}\n    loss_fn_config:", text)


def test_edm_has_its_own_noise_levels() -> None:
    translated = recipe(with_edm())
    objective = translated.objective
    assert (translated.model.prediction, objective.weighting, objective.noise_levels) == (
        "edm",
        "prediction",
        "log-normal",
    )
    assert (objective.log_normal, objective.sigma_data) == ((-1.0, 1.5), 0.5)


@pytest.mark.parametrize(
    ("scaling", "weighting", "expected"),
    [
        ("EpsScaling", "EpsWeighting", ("epsilon", "prediction")),
        ("EpsScaling", "UnitWeighting", ("epsilon", "unit")),
        ("EpsScaling2", "EpsWeighting", ("epsilon-unscaled", "prediction")),
        ("VScaling", "VWeighting", ("v", "prediction")),
        ("VScaling", "EDMWeighting", ("v", "edm")),
        ("EpsScaling", "VWeighting", ("epsilon", "v")),
    ],
)
def test_scalings_and_weightings_are_translated(scaling: str, weighting: str, expected: tuple[str, str]) -> None:
    text = replaced("EpsScaling", scaling, replaced("EpsWeighting", weighting))
    translated = recipe(text)
    assert (translated.model.prediction, translated.objective.weighting) == expected


def test_losses_and_noise_offsets_are_translated() -> None:
    offset = "        offset_noise_level: "
    objective = recipe(replaced(f"type: l2\n{offset}0.05\n", f"type: l1\n{offset}0.1\n")).objective
    assert (objective.loss, objective.noise_offset, objective.noise_offset_per) == ("l1", 0.1, "sample")
    second = recipe(replaced("StandardDiffusionLoss", "StandardDiffusionLoss2"))
    assert second.objective.noise_offset_per == "channel"


def test_smaller_depth_is_a_smaller_network() -> None:
    assert recipe(replaced("[1, 2, 10]", "[1, 1, 1]")).model.depth == (1, 1, 1)
    tiny = replaced("model_channels: 320", "model_channels: 32", replaced("[1, 2, 10]", "[1, 2]"))
    assert recipe(tiny).model.depth == (1, 2)
    assert "the sizes of the network are those of the weights (model_channels)" in notes(tiny)
    assert "as large as" not in notes(PLAIN)


def test_refiner_is_conditioned_on_a_score() -> None:
    text = PLAIN
    for base, refiner in (
        ("adm_in_channels: 2816", "adm_in_channels: 2560"), ("model_channels: 320", "model_channels: 384"),
        ("channel_mult: [1, 2, 4]", "channel_mult: [1, 2, 4, 4]"),
        ("transformer_depth: [1, 2, 10]", "transformer_depth: 4"),
        ("context_dim: 2048", "context_dim: [1280, 1280, 1280, 1280]"),
    ):  # fmt: skip
        text = replaced(base, refiner, text)
    first = text.index("          - is_trainable: False\n            input_key: txt\n            target: gm.modules."
                       "embedders.modules.FrozenCLIPEmbedder\n")  # fmt: skip
    second = text.index("          - is_trainable", first + 5)
    text = text[:first] + text[second:]
    text = replaced("target_size_as_tuple", "aesthetic_score", text)
    translated = recipe(text, "--version=SDXL-refiner-1.0", "--weight=")
    assert (translated.model.path, translated.model.depth) == (Path("sdxl-refiner"), None)
    assert "as large as" not in notes(text)


def test_text_encoders_are_trained_when_both_options_agree() -> None:
    frozen = "is_trainable: False\n            input_key: txt"
    text = replaced(frozen, frozen.replace("False", "True"))
    assert "FrozenOpenCLIPEmbedder2 is not trained, because its `freeze` is True" in notes(text)
    first = replaced("layer_idx: 11", "layer_idx: 11\n              freeze: no", text)
    free = replaced("freeze: True", "freeze: False", first)
    assert recipe(free).model.train == ("denoiser", "text_encoder", "text_encoder_2")
    assert "no is read as False" in notes(free)


def test_captions_are_dropped_by_embedders_or_data() -> None:
    rate = "input_key: txt\n            ucg_rate: 0.1"
    captions = recipe(replaced("input_key: txt", rate)).data.captions
    assert (captions.dropout, captions.dropped) == (0.1, "zeros")
    legacy = f"{rate}\n            legacy_ucg_value: ''"
    captions = recipe(replaced("input_key: txt", legacy)).data.captions
    assert (captions.dropout, captions.dropped) == (0.1, "empty")
    share = "target_size: 1024\n      prompt_empty_probability: 0.2"
    assert recipe(replaced("target_size: 1024", share)).data.captions.dropout == 0.2
    both = replaced("target_size: 1024", share, replaced("input_key: txt", rate))
    assert [p.code for p in problems(both)] == ["E1081"]


def test_attention_and_autoencoder_precision_are_translated() -> None:
    translated = recipe(replaced("disable_first_stage_amp: True", "disable_first_stage_amp: off"))
    assert translated.run.vae_dtype == "same"
    assert "True is recommended" in notes(replaced("disable_first_stage_amp: True", "disable_first_stage_amp: False"))
    vanilla = replaced("attn_type: flash-attention\n        legacy", "attn_type: vanilla\n        legacy")
    assert recipe(vanilla).model.attention == "math"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Denoiser\n", "DiscreteDenoiser\n", "passes timesteps, but EDMScaling needs a logarithm of sigma"),
        ("EDMScaling\n          params: {sigma_data: 0.5}", "EpsScaling", "write DiscreteDenoiser"),
        (
            "params: {sigma_data: 0.5}\n    sigma",
            "params: {sigma_data: 0.7}\n    sigma",
            "must have the same sigma_data",
        ),
    ],
)
def test_conflicting_loss_settings_are_refused(old: str, new: str, message: str) -> None:
    codes, messages = refused(with_edm(replaced(old, new, _EDM)))
    assert codes == {"E1081"}
    assert message in messages
