"""The YAML files of `mindone-sdxl`: that of the document on hyper-parameters, those that ship, each class and param
that may be named, and what is refused by name and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mezzotint.dialects.base import Launched
from mezzotint.dialects.mindone_sdxl._dialect import SHIPPED
from mezzotint.dialects.mindone_sdxl._targets import BASE, REFINER, TARGETS
from mezzotint.errors import Problem, RecipeError
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks.reading import foreign

PLAIN = re.sub(
    r"  scheduler_config:\n(?:    .*\n)+", "", (SHIPPED / "sd_xl_base_finetune_910b.yaml").read_text("utf-8")
)
"""A file that ships, without the warm-up that is replaced below."""
ALONE = Launched()

DOCUMENT = """
# Diffusion Engine
model:
    target: gm.models.diffusion.DiffusionEngine
    params:

        # disable vae auto-mix-precision: keep vae compute with fp32
        disable_first_stage_amp: True

        # VAE
        first_stage_config:
            target: gm.models.autoencoder.AutoencoderKLInferenceWrapper
            params:
                embed_dim: 4
                monitor: val/rec_loss
                ddconfig:
                    attn_type: vanilla
                    double_z: true
                    z_channels: 4
                    resolution: 256
                    in_channels: 3
                    out_ch: 3
                    ch: 128
                    ch_mult: [1, 2, 4, 4]
                    num_res_blocks: 2
                    attn_resolutions: []
                    dropout: 0.0
                lossconfig:
                    target: mindspore.nn.Identity

        # UNet
        network_config:
            target: gm.modules.diffusionmodules.openaimodel.UNetModel
            params:
                adm_in_channels: 2816
                num_classes: sequential
                in_channels: 4
                out_channels: 4
                model_channels: 320
                attention_resolutions: [4, 2]
                num_res_blocks: 2
                channel_mult: [1, 2, 4]
                num_head_channels: 64
                use_spatial_transformer: True
                use_linear_in_transformer: True
                context_dim: 2048
                legacy: False

                # depth of transformer: if debug, you can try setting it to [1, 1, 1] to
                #   reduce the size of the unet to reduce compilation time.
                transformer_depth: [1, 2, 10]

                # attention type: flash-attention or vanilla, default is `flash-attention`,
                #   that can reduce npu/gpu memory and improve speed
                spatial_transformer_attn_type: flash-attention

                # recompute: turn on to reduce npu/gpu memory
                use_recompute: True

        # Text-Encoders and vector conditioners
        conditioner_config:
            target: gm.modules.GeneralConditioner
            params:
                emb_models:
                  # text-encoder 1, clip
                  - is_trainable: False
                    input_key: txt
                    target: gm.modules.embedders.modules.FrozenCLIPEmbedder
                    params:
                      layer: hidden
                      layer_idx: 11
                      version: openai/clip-vit-large-patch14

                  # text-encoder 2, openclip
                  - is_trainable: False
                    input_key: txt
                    target: gm.modules.embedders.modules.FrozenOpenCLIPEmbedder2
                    params:
                      arch: ViT-bigG-14-Text
                      freeze: True
                      layer: penultimate
                      always_return_pooled: True
                      legacy: False
                      require_pretrained: False

                  # vector conditioner 1, original_size_as_tuple
                  - is_trainable: False
                    input_key: original_size_as_tuple
                    target: gm.modules.embedders.modules.ConcatTimestepEmbedderND
                    params:
                      outdim: 256

                  # vector conditioner 2, crop_coords_top_left
                  - is_trainable: False
                    input_key: crop_coords_top_left
                    target: gm.modules.embedders.modules.ConcatTimestepEmbedderND
                    params:
                      outdim: 256

                  # vector conditioner 3, target_size_as_tuple
                  - is_trainable: False
                    input_key: target_size_as_tuple
                    target: gm.modules.embedders.modules.ConcatTimestepEmbedderND
                    params:
                      outdim: 256

        # Loss Function
        loss_fn_config:
            target: gm.modules.diffusionmodules.loss.StandardDiffusionLoss
            params:
                # noise offset
                offset_noise_level: 0.05

        # Denoiser
        denoiser_config:
            target: gm.modules.diffusionmodules.denoiser.DiscreteDenoiser
            params:
                num_idx: 1000
                weighting_config:
                    target: gm.modules.diffusionmodules.denoiser_weighting.EpsWeighting
                scaling_config:
                    target: gm.modules.diffusionmodules.denoiser_scaling.EpsScaling
                discretization_config:
                    target: gm.modules.diffusionmodules.discretizer.LegacyDDPMDiscretization

        # Sigma sampler
        sigma_sampler_config:
            target: gm.modules.diffusionmodules.sigma_sampling.DiscreteSampling
            params:
                num_idx: 1000
                discretization_config:
                    target: gm.modules.diffusionmodules.discretizer.LegacyDDPMDiscretization


# Optimizer
optim:
    # learning rate
    base_learning_rate: 1.0e-6

    # adamw optimizer
    optimizer_config:
        target: mindspore.nn.AdamWeightDecay
        params:
            beta1: 0.9
            beta2: 0.999
            weight_decay: 0.01

    # learning rate scheduler
    scheduler_config:
        target: gm.lr_scheduler.LambdaWarmUpScheduler
        params:
            warm_up_steps: 500

# DataLoader
data:
    per_batch_size: 1               # batch size of per device card
    total_step: 100000              # train total steps
    num_parallel_workers: 2         # num of data preprocess worker
    python_multiprocessing: False   # whether to turn on `python_multiprocessing`
    shuffle: True                   # whether to shuffle dataset

    # Dataset
    dataset_config:
        target: gm.data.dataset.Text2ImageDataset
        params:
            target_size: 1024

            # dataset augment
            transforms:
                - target: gm.data.mappers.Resize
                  params:
                    size: 1024
                    interpolation: 3
                - target: gm.data.mappers.Rescaler
                  params:
                    isfloat: False
                - target: gm.data.mappers.AddOriginalImageSizeAsTupleAndCropToSquare
                - target: gm.data.mappers.Transpose
                  params:
                    type: hwc2chw
"""
"""MindONE's document on hyper-parameters, with its dots filled in."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reading(text: str, *words: str) -> Any:
    """A line with a YAML of such a text, in the current folder."""
    Path("mine.yaml").write_text(text)
    return foreign.reading("mindone-sdxl", ["--config=mine.yaml", "--data_path=pictures", *words], (), ALONE)


def recipe(text: str, *words: str) -> Recipe:
    translated: Recipe = reading(text, *words).recipe
    return translated


def notes(text: str, *words: str) -> str:
    return "\n".join(reading(text, *words).notes)


def replaced(old: str, new: str, text: str = PLAIN) -> str:
    assert old in text, old
    return text.replace(old, new)


def problems(text: str, *words: str) -> tuple[Problem, ...]:
    with pytest.raises(RecipeError) as caught:
        reading(text, *words)
    assert caught.value.exit_status == 2
    return caught.value.problems


def line_of(text: str, words: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)


# the documents


def test_the_document_s_yaml_is_what_it_says(here: Path) -> None:
    translated = recipe(DOCUMENT)
    assert (translated.model.family, translated.model.attention, translated.model.depth) == ("sdxl", "auto", None)
    assert (translated.run.vae_dtype, translated.run.recompute.enabled) == ("fp32", True)
    assert (translated.objective.noise_offset, translated.objective.noise_offset_per) == (0.05, "sample")
    optimizer: Any = translated.optim.optimizer
    assert (optimizer.kind, optimizer.betas, optimizer.weight_decay, optimizer.eps) == (
        "adam-weight-decay", (0.9, 0.999), 0.01, 1e-6,
    )  # fmt: skip
    schedule = translated.optim.schedule
    assert (translated.optim.lr, schedule.kind, schedule.warmup_steps) == (1e-6, "constant", 500)
    assert (translated.data.batch_size, translated.run.steps, translated.data.workers) == (1, 100_000, 2)
    assert (translated.data.resolution, translated.data.buckets.shape, translated.data.crop) == (
        1024,
        "square",
        "random",
    )
    assert (translated.data.resize, translated.data.antialias) == ("bicubic", False)
    assert "SDXL's 0.13025 is taken" in notes(DOCUMENT)


@pytest.mark.parametrize("name", ["sd_xl_base_finetune_910b", "sd_xl_base_finetune_910b_fa",
                                  "sd_xl_base_finetune_multi_graph_910b"])  # fmt: skip
def test_those_that_ship_are_the_document_s_recipe(here: Path, name: str) -> None:
    translated = recipe((SHIPPED / f"{name}.yaml").read_text("utf-8"))
    assert translated == recipe(DOCUMENT)
    assert translated.optim.lr == 1e-6


def test_stability_s_paths_and_places_are_read_as_well(here: Path) -> None:
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


# the model

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


def test_edm_has_levels_of_its_own(here: Path) -> None:
    translated = recipe(with_edm())
    objective = translated.objective
    assert (translated.model.prediction, objective.weighting, objective.levels) == ("edm", "prediction", "log-normal")
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
def test_scalings_and_weightings_are_predictions_and_weightings(
    here: Path, scaling: str, weighting: str, expected: tuple[str, str]
) -> None:
    text = replaced("EpsScaling", scaling, replaced("EpsWeighting", weighting))
    translated = recipe(text)
    assert (translated.model.prediction, translated.objective.weighting) == expected


def test_losses_and_their_offsets(here: Path) -> None:
    translated = recipe(
        replaced("type: l2\n        offset_noise_level: 0.05\n", "type: l1\n        offset_noise_level: 0.1\n")
    )
    assert (translated.objective.loss, translated.objective.noise_offset, translated.objective.noise_offset_per) == (
        "l1", 0.1, "sample",
    )  # fmt: skip
    second = recipe(replaced("StandardDiffusionLoss", "StandardDiffusionLoss2"))
    assert second.objective.noise_offset_per == "channel"


def test_a_smaller_depth_is_a_smaller_network_and_other_sizes_are_those_of_the_weights(here: Path) -> None:
    assert recipe(replaced("[1, 2, 10]", "[1, 1, 1]")).model.depth == (1, 1, 1)
    tiny = replaced("model_channels: 320", "model_channels: 32", replaced("[1, 2, 10]", "[1, 2]"))
    assert recipe(tiny).model.depth == (1, 2)
    assert "the network is as large as the weights say (model_channels)" in notes(tiny)
    assert "as large as" not in notes(PLAIN)


def test_the_refiner_is_told_a_score(here: Path) -> None:
    text = PLAIN
    for key in ("adm_in_channels", "model_channels", "channel_mult", "transformer_depth", "context_dim"):
        text = replaced(f"{key}: {BASE[key]}", f"{key}: {REFINER[key]}", text)
    first = text.index("          - is_trainable: False\n            input_key: txt\n            target: gm.modules."
                       "embedders.modules.FrozenCLIPEmbedder\n")  # fmt: skip
    second = text.index("          - is_trainable", first + 5)
    text = text[:first] + text[second:]
    text = replaced("target_size_as_tuple", "aesthetic_score", text)
    translated = recipe(text, "--version=SDXL-refiner-1.0", "--weight=")
    assert (translated.model.path, translated.model.depth) == (Path("sdxl-refiner"), None)
    assert "as large as" not in notes(text)


def test_text_encoders_are_trained_when_both_words_say_so(here: Path) -> None:
    frozen = "is_trainable: False\n            input_key: txt"
    text = replaced(frozen, frozen.replace("False", "True"))
    assert "nothing of FrozenOpenCLIPEmbedder2 is trained, since its `freeze` is True" in notes(text)
    first = replaced("layer_idx: 11", "layer_idx: 11\n              freeze: no", text)
    free = replaced("freeze: True", "freeze: False", first)
    assert recipe(free).model.train == ("denoiser", "text_encoder", "text_encoder_2")
    assert "no is read as False" in notes(free)


def test_captions_are_dropped_by_embedders_or_by_the_data(here: Path) -> None:
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


def test_attention_and_precision_of_the_autoencoder(here: Path) -> None:
    translated = recipe(replaced("disable_first_stage_amp: True", "disable_first_stage_amp: off"))
    assert translated.run.vae_dtype == "same"
    assert "True is recommended" in notes(replaced("disable_first_stage_amp: True", "disable_first_stage_amp: False"))
    assert recipe(
        replaced("attn_type: flash-attention\n        legacy", "attn_type: vanilla\n        legacy")
    ).model.attention == ("math")


# the update


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ("LambdaWarmUpScheduler\n    params: {warm_up_steps: 500}", {"kind": "constant", "warmup_steps": 500}),
        (
            "LambdaWarmUpCosineScheduler\n    params: {warm_up_steps: 4, lr_min: 0.1, lr_max: 1.0, lr_start: 0.01, "
            "max_decay_steps: 16}",
            {"kind": "cosine", "warmup_steps": 4, "warmup_from": 0.01, "floor": 0.1, "decay_steps": 16},
        ),
        (
            "LambdaWarmUpCosineScheduler\n    params: {warm_up_steps: 4, lr_min: 0.5, lr_max: 2.0}",
            {"kind": "cosine", "warmup_steps": 4, "floor": 0.25, "decay_steps": None},
        ),
        (
            "MultiStepLR\n    params: {milestones: [3, 6], gamma: 0.9}",
            {"kind": "piecewise", "points": ((3, pytest.approx(0.9)), (6, pytest.approx(0.81)))},
        ),
    ],
)
def test_schedulers_are_schedules(here: Path, scheduler: str, expected: dict[str, Any]) -> None:
    text = replaced("optim:\n", f"optim:\n  scheduler_config:\n    target: gm.lr_scheduler.{scheduler}\n")
    translated = recipe(text)
    schedule = translated.optim.schedule.model_dump()
    assert {key: schedule[key] for key in expected} == expected
    assert translated.optim.lr == pytest.approx(2e-6 if "lr_max: 2.0" in scheduler else 1e-6)


def test_schedulers_in_cycles_are_rounds(here: Path) -> None:
    lists = "{warm_up_steps: [2, 3], f_min: [0.1, 0.0], f_max: [1.0, 0.5], f_start: [0.01, 0.1], cycle_lengths: [8, 9]}"
    for name, curve in (("LambdaWarmUpCosineScheduler2", "cosine"), ("LambdaLinearScheduler", "linear")):
        text = replaced(
            "optim:\n", f"optim:\n  scheduler_config:\n    target: gm.lr_scheduler.{name}\n    params: {lists}\n"
        )
        rounds = recipe(text).optim.schedule.rounds
        assert [(r.steps, r.warmup_steps, r.start, r.peak, r.end, r.curve) for r in rounds] == [
            (8, 2, 0.01, 1.0, 0.1, curve), (9, 3, 0.1, 0.5, 0.0, curve)
        ]  # fmt: skip
        halved = recipe(text, "--gradient_accumulation_steps=2").optim.schedule.rounds
        assert [(r.steps, r.warmup_steps) for r in halved] == [(4, 1), (5, 2)]


def test_warm_up_is_counted_in_steps(here: Path) -> None:
    text = replaced(
        "optim:\n",
        "optim:\n  scheduler_config:\n    target: a.LambdaWarmUpScheduler\n    params: {warm_up_steps: 500}\n",
    )
    assert recipe(text, "--gradient_accumulation_steps=3").optim.schedule.warmup_steps == 167
    assert "500 batches are 167 steps" in notes(text, "--gradient_accumulation_steps=3")


def test_without_an_optimizer_it_is_plain_descent(here: Path) -> None:
    text = re.sub(r"optim:\n(?:  .*\n)+", "optim: {}\n", PLAIN)
    translated = recipe(text)
    optimizer: Any = translated.optim.optimizer
    assert (translated.optim.lr, optimizer.kind, optimizer.class_name) == (1e-6, "library", "torch.optim.SGD")
    text = replaced("mindspore.nn.AdamWeightDecay", "mindspore.nn.SGD",
                    replaced("      beta1: 0.9\n      beta2: 0.999\n", "      momentum: 0.9\n"))  # fmt: skip
    optimizer = recipe(text).optim.optimizer
    assert (optimizer.options, optimizer.weight_decay) == ({"momentum": 0.9}, 0.01)


# the data


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, ("nearest", False)), (1, ("lanczos", True)), (2, ("bilinear", False)), (3, ("bicubic", False)),
        (4, ("area", True)), (5, ("bicubic", True)),
    ],
)  # fmt: skip
def test_codes_of_filters(here: Path, code: int, expected: tuple[str, bool]) -> None:
    data = recipe(replaced("interpolation: 3", f"interpolation: {code}")).data
    assert (data.resize, data.antialias) == expected


CROP = "        - target: gm.data.mappers.AddOriginalImageSizeAsTupleAndCropToSquare\n"


def test_other_crops_and_mirrors(here: Path) -> None:
    centre = "        - target: gm.data.mappers.CenterCrop\n          params: {size: 1024}\n"
    mirror = "        - target: gm.data.mappers.RandomHorizontalFlip\n          params: {p: 0.3}\n"
    data = recipe(replaced(CROP, mirror + centre)).data
    assert (data.crop, data.flip) == ("center", 0.3)
    assert recipe(replaced(CROP, CROP + mirror.replace("p: 0.3", "p: 0.5"))).data.flip == 0.5


MULTI = """
      target_size: 1024
      multi_aspect: [[704, 1408], [1024, 1024], [1472, 704], [1472, 704]]
      batched_transforms:
        - target: gm.data.mappers.BatchedResizedAndRandomCrop
        - target: gm.data.mappers.BatchedRescaler
          params: {isfloat: False}
        - target: gm.data.mappers.BatchedTranspose
          params: {type: bhwc2bchw}
"""


def test_several_sizes_are_buckets_by_list(here: Path) -> None:
    text = re.sub(r"\n      target_size: 1024\n(?:      .*\n)+", MULTI, PLAIN)
    data = recipe(text).data
    assert (data.buckets.shape, data.buckets.sizes) == ("list", ((704, 1408), (1024, 1024), (1472, 704)))
    assert (data.resize, data.antialias, data.crop) == ("bilinear", False, "random")
    assert "at the size nearest to its own shape" in notes(text)


def test_data_sets_in_tar_files_are_a_format(here: Path) -> None:
    text = replaced("dataset.Text2ImageDataset\n    params:\n", "dataset_wds.T2I_Webdataset\n    params:\n"
                    "      caption_key: text_english\n")  # fmt: skip
    dialect = foreign.dialect("mindone-sdxl")
    Path("mine.yaml").write_text(text)
    data = dialect.translate(["--config=mine.yaml", "--data_path=tars"], ALONE).settings["data"]
    assert (data["format"], data["columns"]["caption"]) == ("webdataset", "text_english")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (replaced("nn.AdamWeightDecay\n    params:\n", "nn.AdamWeightDecayZeRO1\n    params:\n      shard_size: 2\n"),
         {"parameters": False, "group": 2}),
        (replaced("AdamWeightDecay", "AdamWeightDecayZeRO1"), {"parameters": False, "group": None}),
        (replaced("DiscreteSampling", "DiscreteSamplingForZero3"), {"parameters": True, "group": None}),
    ],
)  # fmt: skip
def test_sharded_optimizers_and_weights_are_shared_among_processes(
    here: Path, text: str, expected: dict[str, Any]
) -> None:
    dialect = foreign.dialect("mindone-sdxl")
    Path("mine.yaml").write_text(text)
    words = ["--config=mine.yaml", "--data_path=pictures", "--is_parallel=True"]
    run = dialect.translate(words, Launched(processes=4, launcher="torchrun")).settings["run"]
    assert (run["runtime"], run["shard"]) == ("fsdp", expected)
    alone = dialect.translate(words, ALONE)
    assert (alone.settings["run"]["runtime"], "shard" in alone.settings["run"]) == ("auto", False)
    assert any("shares with nobody" in str(note) for note in alone.notes)
    if expected["group"]:
        with pytest.raises(RecipeError, match="does not divide the 3 processes"):
            dialect.translate(words, Launched(processes=3, launcher="torchrun"))


def test_small_pictures_may_be_left_out(here: Path) -> None:
    asked = "target_size: 1024\n      image_filter_size: 1024\n      filter_small_size: True"
    assert recipe(replaced("target_size: 1024", asked)).data.small == "skip"
    assert recipe(PLAIN).data.small == "upscale"


def test_lengths_in_epochs_and_workers(here: Path) -> None:
    text = replaced("total_step: 100000", "num_epochs: 3\n  drop_remainder: False",
                    replaced("num_parallel_workers: 2", "num_parallel_workers: 6"))  # fmt: skip
    translated = recipe(text)
    assert (translated.run.steps, translated.run.epochs, translated.data.workers, translated.data.remainder) == (
        None,
        3,
        6,
        "short",
    )
    assert translated.data.shuffle is True
    assert recipe(replaced("shuffle: True", "shuffle: False")).data.shuffle is False


# refusals


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("openaimodel.UNetModel", "openaimodel.UNetModle", "E1080", "the nearest denoising network is UNetModel"),
        ("loss.StandardDiffusionLoss", "loss.StandardLoss", "E1080", "the nearest loss is StandardDiffusionLoss"),
        ("mindspore.nn.AdamWeightDecay", "mindspore.nn.Adam", "E1080", "the nearest optimizer is AdamWeightDecay"),
        ("mappers.Rescaler", "mappers.UNetModel", "E1080", "UNetModel is a denoising network, and a transform belongs"),
        ("openaimodel.UNetModel", "openaimodel.UNetModel_lora", "E1081", "trains LoRA, which is not supported yet"),
        ("DiffusionEngine", "DiffusionEngineDreamBooth", "E1081", "trains DreamBooth, which is not supported yet"),
        ("DiffusionEngine", "DiffusionEngineControlNet", "E1081", "trains ControlNet, which is not supported yet"),
        ("Text2ImageDataset", "Text2ImageDatasetTextualInversion", "E1081", "trains textual inversion, which is not"),
        ("LegacyDDPMDiscretization", "EDMDiscretization", "E1081", "is a table to draw with"),
        ("FrozenCLIPEmbedder", "FrozenCnCLIPEmbedder", "E1081", "reads Chinese captions"),
        ("use_recompute", "use_recomputation", "E1016", "did you mean use_recompute?"),
        ("beta2: 0.999", "beta2: high", "E1017", "must be a number, got 'high'"),
        ("isfloat: False", "isfloat: True", "E1081", "only False can be done"),
        ("num_idx: 1000", "num_idx: 500", "E1081", "only 1000 can be done: the schedule has 1000 timesteps"),
        ("legacy: False\n        use_recompute", "legacy: True\n        use_recompute", "E1081", "only False can be"),
        ("scale_factor: 0.13025", "scale_factor: 0.5", "E1081", "only None or 0.13025 can be done"),
        ("layer_idx: 11", "layer_idx: 10", "E1081", "the last of twelve layers"),
        ("target_size: 1024", "target_size: 512", "E1082", "is 512, and pictures are made 1024; write 1024"),
        ("interpolation: 3", "interpolation: 7", "E1017", "takes 0 to 5, got 7"),
        ("optim:\n", "optimizer:\n  lr: 1\noptim:\n", "E1016", "known are data, model, optim, version"),
        ("outdim: 256", "outdim: 128", "E1081", "SDXL has 256, got 128"),
        ("crop_coords_top_left", "aesthetic_score", "E1081", "in this order"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_line(here: Path, old: str, new: str, code: str, said: str) -> None:
    text = replaced(old, new)
    refused = problems(text)
    assert {problem.code for problem in refused} == {code}
    assert said in f"{refused[0].what}; {refused[0].remedy}"
    assert refused[0].where.endswith(" in mine.yaml")
    assert refused[0].line is not None


def test_the_line_of_an_unknown_class_is_that_of_its_target(here: Path) -> None:
    text = replaced("openaimodel.UNetModel", "openaimodel.UNetModle")
    [problem] = problems(text)
    assert problem.line == line_of(text, "UNetModle")
    assert problem.where == "model.params.network_config.target in mine.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN.replace(CROP, ""), "got Resize, Rescaler, Transpose"),
        (PLAIN.replace(CROP, CROP + CROP), "stands there more than once"),
        (PLAIN.replace(CROP, "").replace("            type: hwc2chw\n", "            type: hwc2chw\n" + CROP),
         "stands behind Transpose; put it before"),
        (PLAIN.replace(CROP, "        - target: gm.data.mappers.CenterCrop\n          params: {size: 512}\n"),
         "is 512, and pictures are resized to 1024"),
    ],
)  # fmt: skip
def test_an_order_of_transforms_that_placement_cannot_express_is_refused(here: Path, text: str, said: str) -> None:
    refused = problems(text)
    assert {problem.code for problem in refused} == {"E1082"}
    assert said in " ".join(f"{problem.what}; {problem.remedy}" for problem in refused)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Denoiser\n", "DiscreteDenoiser\n", "tells timesteps, and EDMScaling is told a logarithm of sigma"),
        ("EDMScaling\n          params: {sigma_data: 0.5}", "EpsScaling", "write DiscreteDenoiser"),
        ("params: {sigma_data: 0.5}\n    sigma", "params: {sigma_data: 0.7}\n    sigma", "have one sigma_data"),
    ],
)
def test_mathematics_that_does_not_go_together_is_refused(here: Path, old: str, new: str, said: str) -> None:
    refused = problems(with_edm(replaced(old, new, _EDM)))
    assert {problem.code for problem in refused} == {"E1081"}
    assert any(said in f"{problem.what}; {problem.remedy}" for problem in refused)


def test_yaml_that_is_none_and_parts_that_are_missing(here: Path) -> None:
    assert [p.code for p in problems("model: [")] == ["E1004"]
    assert [(p.where, p.code) for p in problems("data:\n  per_batch_size: 1\n  total_step: 5\n")] == [
        ("model in mine.yaml", "E1017"), ("data.dataset_config in mine.yaml", "E1017"),
    ]  # fmt: skip
    assert {p.code for p in problems(replaced("      target: gm.modules.diffusionmodules.loss.StandardDiffusionLoss\n",
                                              ""))} == {"E1017"}  # fmt: skip


def test_every_class_has_a_role_and_params_or_a_reason() -> None:
    for name, target in TARGETS.items():
        assert target.role, name
        assert not (target.refused and target.params), name
        for key, param in target.params.items():
            assert not param.only or param.about, f"{name}.{key}"
            assert not param.idle or param.about, f"{name}.{key}"
