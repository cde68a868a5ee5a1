"""Recipes as files of jobs: what a job sets comes back, and what our recipes lose is noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from foreign_lines import ALONE, GONE, flat
from jobs import FLUX, job, write
from key_cases import ACTS, BESIDE, KLEIN, WAN, path_of

from mezzotint.compat.ai_toolkit.dialect import DIALECT
from mezzotint.compat.kit.comparing import describe, find_differences
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read
from mezzotint.settings.reading.translation import Launched, WrittenRecipe
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading import foreign

SUPPORT = Path(__file__).parent / "support"

SYNONYMS = {
    "training_folder", "network.rank", "network.alpha", "network.transformer_only", "network.all_layers",
    "network.lokr_full_rank", "network.network_kwargs.only_if_contains", "network.layer_offloading", "sample.width",
    "sample.prompts", "sample.samples", "train.unet_lr", "train.optimizer_params.decouple", "train.disable_sampling",
    "train.gradient_accumulation_steps", "train.prompt_dropout_prob", "train.unload_text_encoder", "model.is_v2",
    "model.vae_dtype", "model.qtype_te", "model.auto_memory", "model.layer_offloading_transformer_percent",
    "model.block_compile", "model.model_kwargs.train_low_noise", "datasets.batch_size", "datasets.trigger_word",
    "datasets.caption_type", "datasets.square_crop", "datasets.cache_latents",
    "datasets.cache_text_embeddings", *(key for key in ACTS if key.startswith("samples.")),
}  # fmt: skip
"""Keys whose value is written with another key, in another form, or not at all because it is the default."""

COMBINED: list[dict[str, Any]] = [
    {"train.steps": 300, "train.lr": 1e-4, "train.optimizer": "adamw8bit", "train.lr_scheduler": "cosine",
     "train.lr_scheduler_params.eta_min": 1e-7, "train.min_snr_gamma": 5, "train.noise_offset": 0.05,
     "train.gradient_accumulation": 4, "train.loss_type": "mae", "train.max_denoising_steps": 500,
     "train.ema_config.use_ema": True, "train.ema_config.ema_decay": 0.99, "logging.use_wandb": True,
     "sample.sampler": "euler_a", "save.dtype": "bf16", "device": "cpu", "training_seed": 7},
    {**FLUX, "train.timestep_type": "linear", "train.min_denoising_steps": 100, "model.quantize": True,
     "network.type": "lokr", "network.lokr_full_rank": False, "network.lokr_factor": 8, "trigger_word": "p3r"},
    {"network": GONE, "train.dtype": "bf16", "train.train_text_encoder": True, "train.text_encoder_lr": 5e-6,
     "model.only_if_contains": ["up_blocks"], "train.lr_scheduler": "linear", "save.save_format": "diffusers"},
    {"model.is_xl": True, "network.conv": 4, "network.conv_alpha": 2, "train.train_text_encoder": True,
     "model.use_text_encoder_1": False, "train.optimizer": "prodigy", "train.optimizer_params.d_coef": 2},
    {"datasets.1.folder_path": "kind", "datasets.1.is_reg": True, "train.reg_weight": 0.5, "trigger_word": "fox"},
    {"datasets.1.folder_path": "b", "datasets.1.loss_multiplier": 0.5, "datasets.1.resolution": [256, 512],
     "datasets.1.trigger_word": "a", "datasets.0.trigger_word": "b", "datasets.1.batch_size": 3,
     "datasets.1.mask_path": "m", "datasets.1.buckets": False, "datasets.1.random_crop": True},
    {**WAN, "model.model_kwargs.train_high_noise": False, "datasets.0.num_frames": 33, "datasets.0.fps": 16,
     "datasets.0.shrink_video_to_frames": False, "sample.num_frames": 33},
    {**WAN, "model.arch": "wan21_i2v", "datasets.0.num_frames": 33, "datasets.0.shrink_video_to_frames": False,
     "sample.num_frames": 33, "sample.prompts": ["a fox --ctrl_img a.png"]},
    {**WAN, "model.arch": "wan22_14b_i2v", "datasets.0.num_frames": 33, "datasets.0.shrink_video_to_frames": False,
     "sample.num_frames": 33, "sample.prompts": ["a fox --ctrl_img a.png"]},
    {**FLUX, "model.arch": "flux_kontext", "datasets.0.control_path": "before",
     "sample.prompts": ["a fox --ctrl_img a.png", "b --ctrl_img b.png"]},
    {**KLEIN, "model.arch": "qwen_image_edit", "datasets.0.control_path": "before",
     "sample.prompts": ["a fox --ctrl_img a.png"]},
    {**KLEIN, "model.arch": "qwen_image_edit_plus", "model.name_or_path": "Qwen-Image-Edit-2511",
     "datasets.0.control_path": ["faces", "styles"], "sample.prompts": ["a fox --ctrl_img_1 a --ctrl_img_2 b"]},
    {**KLEIN, "model.name_or_path": "FLUX.2-klein-base-4B", "datasets.0.control_path": ["faces", "styles"]},
    {**FLUX, "train.timestep_type": "weighted", "train.max_denoising_steps": 500},
    {**FLUX, "model.arch": "krea2", "sample.guidance_scale": 4.5},
    {**FLUX, "network.network_kwargs.only_if_contains": ["transformer.blocks.7"], "train.timestep_type": "shift"},
    {"train.optimizer": "adafactor", "train.optimizer_params.relative_step": True, "train.lr": 1e-4},
    {"train.optimizer": "dadaptationlion", "train.optimizer_params.betas": [0.9, 0.99]},
    {"datasets.0.shuffle_tokens": True, "datasets.0.keep_tokens": 2, "datasets.0.token_dropout_rate": 0.1,
     "sample.prompts": ["“a fox”: ä — b # c", "no", "1e-4", ""]},
]  # fmt: skip
"""Several keys in one job."""


def read_job(name: str) -> Recipe:
    return foreign.read_command_line("ai-toolkit", ["run.py", name], (), ALONE).recipe


def come_back(tree: Any) -> tuple[Recipe, Recipe, dict[str, Any], WrittenRecipe]:
    """The recipe of a job, that of the job written from it, the keys of that job, and the result."""
    first = read_job(write(tree))
    written = DIALECT.write_recipe(first, ALONE)
    [text] = written.files.values()
    keys = flat_keys(yaml.safe_load(text)["config"]["process"][0])
    return first, read_job(write(text, "again.yaml")), keys, written


def flat_keys(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Keys of a job with dots, numbers for entries of lists of objects."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    keys: dict[str, Any] = {}
    for name, value in entries:
        inner = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value))
        keys |= flat_keys(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return keys


@pytest.mark.parametrize("changes", COMBINED)
def test_job_comes_back_from_its_recipe(changes: dict[str, Any]) -> None:
    first, again, keys, written = come_back(job(changes))
    assert again == first
    assert [note for note in written.notes if "is lost" in note] == []
    for key, value in changes.items():
        if value != GONE and key not in SYNONYMS | {"model.is_xl", "network.network_kwargs.only_if_contains"}:
            assert keys.get(key, value) == value, key


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("key", list(ACTS))
def test_each_acting_key_comes_back(key: str) -> None:
    value, _ = ACTS[key]
    first, again, keys, written = come_back(job({**BESIDE.get(key, {}), path_of(key): value}))
    assert again == first
    assert [note for note in written.notes if "is lost" in note] == []
    assert (keys.get(path_of(key)) == value) == (key not in SYNONYMS)


@pytest.mark.parametrize("name", ["flux", "sd3", "wan"])
def test_published_job_comes_back(name: str) -> None:
    tree = yaml.safe_load((SUPPORT / f"published_{name}.yaml").read_text("utf-8"))
    first, again, keys, written = come_back(tree)
    assert again == first
    assert [note for note in written.notes if "is lost" in note] == []
    asked = flat_keys(tree["config"]["process"][0])
    same = ("network.linear", "save.save_every", "train.steps", "train.timestep_type", "train.optimizer", "train.dtype",
            "datasets.0.resolution", "datasets.0.caption_dropout_rate", "sample.guidance_scale", "sample.prompts",
            "model.name_or_path", "model.quantize")  # fmt: skip
    assert {key: keys.get(key) for key in same if key in asked} == {key: asked[key] for key in same if key in asked}


@pytest.mark.parametrize(
    ("name", "lost", "kept"),
    [
        ("mini", ["optim.schedule.warmup_steps=20", "optim.ema.rule='ramp'"],
         {"train.lr": 4e-4, "train.text_encoder_lr": 2e-3, "datasets.0.num_repeats": 8, "device": "cpu"}),
        ("flux-lora-24gb", ["model.adapter.targets=['attention+mlp']", "objective.flow.shift='auto'"],
         {"network.type": "lora", "network.linear": 16, "model.quantize": True, "train.noise_scheduler": "flowmatch"}),
        ("sd15", ["optim.ema.rule='ramp'", "data.cache.crops=2"], {"datasets.0.flip_x": True}),
    ],
)  # fmt: skip
def test_our_recipe_differs_only_where_a_note_says_so(name: str, lost: list[str], kept: dict[str, Any]) -> None:
    recipe = read(name, ["data.path=photos"]).recipe
    written = DIALECT.write_recipe(recipe, ALONE)
    [text] = written.files.values()
    again = read_job(write(text))
    noted = {note.partition("=")[0] for note in written.notes if " is lost: " in note}
    different = find_differences(describe(recipe), describe(again))
    assert noted <= different
    assert all(path.startswith(("run.", "sample.", "data.")) for path in different - noted), different - noted
    assert not [path for path in lost if not any(note.startswith(f"{path} is lost") for note in written.notes)]
    keys = flat_keys(yaml.safe_load(text)["config"]["process"][0])
    assert {key: keys.get(key) for key in kept} == kept
    assert (recipe.model.adapter.kind == "none") == (not any(key.startswith("network.") for key in keys))


def test_flip_and_epochs_are_explained() -> None:
    recipe = read("mini", ["data.path=photos", "data.flip=0.3", "run.epochs=3", "run.steps=null"]).recipe
    notes = DIALECT.write_recipe(recipe, ALONE).notes
    assert "data.flip=0.3 is lost: flip_x is on or off" in notes
    assert "run.epochs=3 is lost: steps count updates, and there are no epochs" in notes


def test_class_that_follows_from_the_trigger_is_written() -> None:
    words = [
        "data.path=photos",
        "data.captions.trigger=sks fox",
        "objective.preserve.kind=output",
        "model.train=denoiser",
    ]
    recipe = read("sd15-lora", words).recipe
    written = DIALECT.write_recipe(recipe, ALONE)
    [text] = written.files.values()
    assert yaml.safe_load(text)["config"]["process"][0]["train"]["diff_output_preservation_class"] == "fox"
    assert not [note for note in written.notes if "class_word" in note or "preserve" in note]


def test_batch_of_several_processes_is_divided() -> None:
    recipe = read("mini", ["data.path=photos", "data.batch_size=8"]).recipe
    [text] = DIALECT.write_recipe(recipe, Launched(2)).files.values()
    assert yaml.safe_load(text)["config"]["process"][0]["train"]["batch_size"] == 4


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("ltx-80gb", ["data.path=photos"], "ai-toolkit cannot train ltx"),
        ("mini", ["data.path=null"], "write data.path=FOLDER"),
        ("mini", ["data.path=photos", "data.conditions={source: before}"], "ai-toolkit has no data.conditions for sd"),
        ("mini-lora", ["data.path=photos"], "cannot run a recipe with model.train"),
    ],
)
def test_recipe_that_it_cannot_run_is_refused(name: str, changes: list[str], words: str) -> None:
    with pytest.raises(RecipeError, match=words) as caught:
        DIALECT.write_recipe(read(name, changes).recipe, ALONE)
    assert caught.value.code == "E1026"


def test_kind_of_model_that_a_recipe_leaves_open_is_a_remark() -> None:
    recipe = read("klein-lora-24gb", ["data.path=photos", "model.path=FLUX.2-klein-base-9B"]).recipe
    written = DIALECT.write_recipe(recipe, ALONE)
    [text] = written.files.values()
    assert flat(yaml.safe_load(text)["config"]["process"][0]["model"])["arch"] == "flux2_klein_9b"
    assert written.notes[-1].startswith("model.arch is flux2_klein_9b, which the recipe does not say exactly")
