"""Recipes as commands of sd-scripts: what a command sets comes back, and what our recipes lose is noted."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dialect_cases import kohya
from foreign_lines import ALONE
from kohya_commands import line

from mezzotint.compat.kit.comparing import describe, find_differences
from mezzotint.compat.kohya._scripts import SCRIPTS
from mezzotint.compat.kohya.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read
from mezzotint.settings.reading.translation import Launched, WrittenRecipe
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading import foreign

OTHER_NAMES = {
    "config_file", "fp8_base_unet", "unet_lr", "use_8bit_adam", "use_lion_optimizer", "in_json", "dataset_repeats",
    "caption_extention", "cache_latents_to_disk", "prompt", "resume",
}  # fmt: skip
"""Acting options that come back as others, with the same recipe; a checkpoint to resume does not come back."""

FLUX = (
    "--ae=ae.safetensors", "--clip_l=clip_l.safetensors", "--t5xxl=t5xxl.safetensors", "--model_prediction_type=raw",
    "--guidance_scale=1.0",
)  # fmt: skip

COMMANDS: list[tuple[str, str]] = [
    ("train_network", "--v_parameterization --zero_terminal_snr --clip_skip=2 --network_dim=32 --network_alpha=16 "
     "--network_args conv_dim=8 conv_alpha=4 --learning_rate=1e-4 --text_encoder_lr 5e-5 --optimizer_type=AdamW8bit "
     "--optimizer_args weight_decay=0.1 betas=0.9,0.95 --lr_scheduler=cosine_with_restarts --lr_warmup_steps=0.05 "
     "--lr_scheduler_num_cycles=3 --max_train_epochs=10 --save_every_n_epochs=2 --save_state --noise_offset=0.05"),
    ("train_network", "--network_module=lycoris.kohya --network_args algo=lokr factor=8 decompose_both=True "
     "preset=attn-mlp --min_snr_gamma=5 --min_timestep=100 --max_timestep=900 --fp8_base --mixed_precision=bf16"),
    ("train_network", "--network_module=lycoris.kohya --network_args algo=loha preset=full conv_dim=2 conv_alpha=1 "
     "--network_train_unet_only --validation_split=0.1 --validate_every_n_steps=50 --max_validation_steps=3"),
    ("sdxl_train_network", "--network_args conv_dim=4 --learning_rate=1e-4 --text_encoder_lr 5e-5 1e-5 "
     "--optimizer_type=Prodigy --optimizer_args d_coef=2 use_bias_correction=True --no_half_vae --log_with=wandb "
     "--network_dropout=0.1 --scale_weight_norms=1 --metadata_trigger_phrase=sks"),
    ("sdxl_train_network", "--network_args rank_dropout=0.1 module_dropout=0.2 loraplus_lr_ratio=16.0 "
     "--optimizer_type=AdamWScheduleFree --optimizer_args warmup_steps=10 r=1.0 --learning_rate=1e-3"),
    ("sdxl_train_network", "--network_train_unet_only --cache_text_encoder_outputs --cache_latents --flip_aug "
     "--enable_bucket --min_bucket_reso=384 --max_bucket_reso=1536 --bucket_reso_steps=32 --resolution=1024"),
    ("flux_train_network", "--timestep_sampling=shift --discrete_flow_shift=3.1582 --blocks_to_swap=18 --fp8_base "
     "--mixed_precision=bf16 --network_train_unet_only --network_args train_double_block_indices=0-2,5 "
     "train_single_block_indices=none"),
    ("flux_train_network", "--timestep_sampling=sigma --weighting_scheme=logit_normal --logit_mean=0.5 --logit_std=0.8 "
     "--discrete_flow_shift=2.0 --network_args img_attn_dim=8 txt_attn_dim=0 single_dim=4 --text_encoder_lr 1e-5"),
    ("flux_train_network", "--model_type=chroma --apply_t5_attn_mask --guidance_scale=0.0 --timestep_sampling=sigmoid "
     "--t5xxl_max_token_length=256 --network_args train_single_block_indices=none"),
    ("sd3_train_network", "--weighting_scheme=mode --mode_scale=1.1 --training_shift=3.0 --t5xxl_max_token_length=154 "
     "--clip_l=l.safetensors --clip_g=g.safetensors --t5xxl=t.safetensors --network_args train_block_indices=1-3"),
    ("train_db", "--stop_text_encoder_training=-1 --full_bf16 --mixed_precision=bf16 --reg_data_dir=reg "
     "--save_model_as=diffusers_safetensors --prior_loss_weight=0.5 --optimizer_type=Lion --max_grad_norm=0"),
    ("train_network", "--max_token_length=150 --noise_offset=0.05 --noise_offset_random_strength --ip_noise_gamma=0.1 "
     "--adaptive_noise_scale=0.01 --ip_noise_gamma_random_strength --debiased_estimation_loss --loss_type=huber "
     "--huber_c=0.2 --huber_schedule=exponential --huber_scale=1.5 --learning_rate=1e-4 --network_args conv_dim=4 "
     f"mid_lr_weight=0.7 down_lr_weight=1.0,{','.join(['0.3'] * 11)}"),
    ("sdxl_train_network", "--network_weights=a.safetensors --loss_type=smooth_l1 --learning_rate=3e-5 --network_args "
     "up_lr_weight=0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9"),
    ("sdxl_train", f"--learning_rate=1e-5 --block_lr={','.join(['2e-06'] * 22 + ['0.0'])}"),
    ("sdxl_train_network", "--network_train_text_encoder_only --learning_rate=1e-5 --text_encoder_lr 1e-5 2e-5"),
    ("train_db", "--learning_rate=1e-6 --learning_rate_te=5e-7 --lr_scheduler=polynomial --lr_scheduler_power=2.0"),
    ("fine_tune", "--train_text_encoder --learning_rate_te=1e-6 --dataset_repeats=3 --optimizer_type=DAdaptAdam "
     "--optimizer_args decouple=True weight_decay=0.01 --learning_rate=1.0"),
    ("sdxl_train", "--train_text_encoder --learning_rate_te1=5e-6 --learning_rate_te2=0.0 --fused_backward_pass "
     "--optimizer_type=Adafactor --optimizer_args scale_parameter=False relative_step=False "
     "--lr_scheduler=constant_with_warmup --lr_warmup_steps=100"),
    ("flux_train", "--timestep_sampling=flux_shift --sigmoid_scale=0.5 --loss_type=l1 --ip_noise_gamma=0.1"),
    ("sd3_train", "--train_text_encoder --learning_rate=4e-6 --blocks_to_swap=10 --min_timestep=200"),
    ("train_textual_inversion", "--num_vectors_per_token=4 --use_style_template --multires_noise_iterations=6 "
     "--multires_noise_discount=0.2 --gradient_accumulation_steps=4 --lr_scheduler=inverse_sqrt --lr_warmup_steps=10 "
     "--lr_scheduler_timescale=30"),
    ("sdxl_train_network", "--lr_scheduler=warmup_stable_decay --lr_decay_steps=0.2 --lr_warmup_steps=20 "
     "--lr_scheduler_min_lr_ratio=0.1"),
    ("train_textual_inversion", "--use_object_template --enable_wildcard --shuffle_caption --secondary_separator=;;;"),
    ("sdxl_train_textual_inversion", "--weights=fox.safetensors --enable_wildcard --caption_prefix=sks"),
]  # fmt: skip
"""Commands of every script: (script, options)."""

SETS = {
    "two sizes, class images, keys at each level": """
        [general]
        shuffle_caption = true
        caption_extension = ".txt"
        keep_tokens = 1
        [[datasets]]
        resolution = 512
        batch_size = 4
        keep_tokens = 2
        [[datasets.subsets]]
        image_dir = 'C:\\hoge'
        class_tokens = "hoge girl"
        [[datasets.subsets]]
        image_dir = 'C:\\fuga'
        class_tokens = "fuga boy"
        keep_tokens = 3
        [[datasets.subsets]]
        is_reg = true
        image_dir = 'C:\\reg'
        class_tokens = "human"
        keep_tokens = 1
        [[datasets]]
        resolution = [768, 768]
        batch_size = 2
        [[datasets.subsets]]
        image_dir = 'C:\\piyo'
        metadata_file = 'C:\\piyo\\piyo_md.json'""",
    "one folder at two sizes": """
        [[datasets]]
        resolution = 512
        [[datasets.subsets]]
        image_dir = 'C:\\hoge'
        [[datasets]]
        resolution = 768
        [[datasets.subsets]]
        image_dir = 'C:\\hoge'""",
    "buckets": """
        [general]
        flip_aug = true
        caption_extension = ".txt"
        [[datasets]]
        batch_size = 2
        enable_bucket = true
        resolution = [1024, 1024]
        [[datasets.subsets]]
        image_dir = "path/to/images"
        [[datasets]]
        batch_size = 3
        enable_bucket = true
        resolution = [768, 512]
        bucket_reso_steps = 32
        [[datasets.subsets]]
        image_dir = "other"
        num_repeats = 10
        [[datasets]]
        enable_bucket = true
        bucket_no_upscale = true
        resolution = 640
        [[datasets.subsets]]
        image_dir = "small"
        random_crop = true""",
    "a folder twice, and one with a metadata file": """
        [general]
        resolution = 512
        [[datasets]]
        [[datasets.subsets]]
        image_dir = "a"
        num_repeats = 2
        [[datasets]]
        [[datasets.subsets]]
        image_dir = "a"
        caption_prefix = "sks"
        [[datasets]]
        [[datasets.subsets]]
        image_dir = "b"
        metadata_file = "b.json\"""",
    "rectangles, masks and captions": """
        [general]
        validation_split = 0.1
        enable_wildcard = true
        [[datasets]]
        resolution = [512, 768]
        [[datasets.subsets]]
        image_dir = "a"
        conditioning_data_dir = "masks"
        caption_dropout_rate = 0.1
        caption_dropout_every_n_epochs = 3
        [[datasets.subsets]]
        image_dir = "b"
        alpha_mask = true
        caption_prefix = "sks"
        caption_suffix = "photo"
        caption_tag_dropout_rate = 0.2
        keep_tokens_separator = "|||"
        secondary_separator = ";;;\"""",
}
"""Data set files; the first two are published."""


def read_line(words: Sequence[str], launched: Launched = ALONE) -> Recipe:
    return foreign.read_command_line("kohya", list(words), (), launched).recipe


def come_back(words: Sequence[str], launched: Launched = ALONE) -> tuple[Recipe, Recipe, WrittenRecipe]:
    """The recipe of a command, that of the command written from it, and the result. Its files are in the folder."""
    first = read_line(words, launched)
    written = DIALECT.write_recipe(first, launched)
    for name, text in written.files.items():
        Path(name).write_text(text, "utf-8")
    return first, read_line(written.line, launched), written


def options_of(written: WrittenRecipe) -> dict[str, Any]:
    return tomllib.loads(written.files["config.toml"])


def lost(written: WrittenRecipe) -> list[str]:
    return [note for note in written.notes if " is lost" in note or note.startswith("left out")]


# --- foreign, ours, foreign -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("script", "words"), COMMANDS)
def test_command_comes_back_from_its_recipe(script: str, words: str) -> None:
    first, again, written = come_back([*line(script, *(FLUX if "flux" in script else ())), *words.split()])
    assert again == first
    assert lost(written) == []
    assert f"{script}.py" in written.line
    options = options_of(written)
    for flag, value in as_options(words.split()).items():
        if flag == "dataset_repeats":
            continue  # num_repeats in the data set file
        assert as_words(options[flag]) >= as_words(value), flag


def as_options(words: Sequence[str]) -> dict[str, list[str]]:
    """Options with their values as texts; a switch is true."""
    options: dict[str, list[str]] = {}
    for word in words:
        flag, sign, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            current = options[flag] = [value] if sign else []
        else:
            current.append(word)
    return {flag: values or ["True"] for flag, values in options.items()}


def as_words(value: Any) -> set[str]:
    """Values as texts; numbers by their value."""
    words = set()
    for one in value if isinstance(value, list) else [value]:
        name, sign, text = str(one).rpartition("=")
        try:
            words.add(f"{name}{sign}{float(text)}")
        except ValueError:
            words.add(f"{name}{sign}{text.strip('()').replace(' ', '')}")
    return words


def test_every_script_has_a_command_that_comes_back() -> None:
    assert {script for script, _ in COMMANDS} == set(SCRIPTS)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("flag", list(kohya.ACTS))
def test_each_acting_option_comes_back(flag: str) -> None:
    kohya.LINES.write_files()
    words = kohya.ACTS[flag][0]
    first, again, written = come_back([*kohya.BAREST, *kohya.LINES.beside.get(flag, ()), *words])
    if flag == "resume":
        assert lost(written) == ["run.resume=out/last is lost: kohya continues from its own states only"]
        return
    assert find_differences(describe(first), describe(again)) == set()
    assert again == first or flag == "network_alpha"  # 0 is the rank
    assert lost(written) == []
    assert (flag in options_of(written)) == (flag not in OTHER_NAMES)


@pytest.mark.parametrize("name", SETS)
def test_data_set_file_comes_back(name: str) -> None:
    Path("data.toml").write_text(SETS[name], "utf-8")
    words = [word for word in line("train_network", "--masked_loss") if "train_data_dir" not in word]
    first, again, written = come_back([*words, "--dataset_config=data.toml"])
    assert again == first
    assert lost(written) == []
    ours, theirs = (
        DIALECT.translate([*words, f"--dataset_config={file}"], ALONE).settings["data"]
        for file in ("data.toml", "dataset.toml")
    )
    assert {**theirs, "batch_size": 0} == {**ours, "batch_size": 0}  # train_batch_size is in the other file


def test_folders_are_in_a_data_set_of_their_kind_and_only_once() -> None:
    Path("data.toml").write_text(SETS["a folder twice, and one with a metadata file"], "utf-8")
    _, _, written = come_back([*kohya.BAREST, "--dataset_config=data.toml"])
    sets = tomllib.loads(written.files["dataset.toml"])["datasets"]
    assert [[one["image_dir"] for one in each["subsets"]] for each in sets] == [["a"], ["a"], ["b"]]


def test_data_set_file_has_common_keys_once() -> None:
    Path("data.toml").write_text(SETS["two sizes, class images, keys at each level"], "utf-8")
    _, _, written = come_back([*kohya.BAREST, "--dataset_config=data.toml"])
    tree = tomllib.loads(written.files["dataset.toml"])
    assert tree["general"] == {"shuffle_caption": True, "caption_extension": ".txt"}
    first, second = tree["datasets"]
    assert {key: value for key, value in first.items() if key != "subsets"} == {"resolution": 512, "batch_size": 4}
    assert first["subsets"][1] == {"image_dir": "C:\\fuga", "class_tokens": "fuga boy", "keep_tokens": 3}
    assert first["subsets"][2]["is_reg"] is True
    assert second["subsets"] == [{"image_dir": "C:\\piyo", "metadata_file": "C:\\piyo\\piyo_md.json", "keep_tokens": 1}]


@pytest.mark.parametrize(
    ("script", "words", "options"),
    [
        ("sdxl_train", "--output_name=sdxl_finetuned --train_text_encoder --learning_rate=1e-5 "
         "--learning_rate_te1=5e-6 --learning_rate_te2=2e-6",
         {"learning_rate": 1e-5, "learning_rate_te1": 5e-6, "learning_rate_te2": 2e-6}),
        ("flux_train", "--output_name=flux1_finetuned --learning_rate=1e-5 --blocks_to_swap=18",
         {"blocks_to_swap": 18, "learning_rate": 1e-5}),
        ("sd3_train_network", "--save_model_as=safetensors --network_dim=16 --network_alpha=1 --learning_rate=0.0001 "
         "--optimizer_type=AdamW8bit --max_train_epochs=10 --save_every_n_epochs=1 --mixed_precision=fp16 "
         "--gradient_checkpointing --blocks_to_swap=32 --clip_l=l --clip_g=g --t5xxl=t",
         {"network_dim": 16, "network_alpha": 1.0, "save_every_n_epochs": 1, "clip_g": "g", "mixed_precision": "fp16"}),
        ("train_textual_inversion", "--num_vectors_per_token=4 --learning_rate=1e-6 --optimizer_type=AdamW8bit "
         "--mixed_precision=fp16 --cache_latents",
         {"token_string": "<fox>", "init_word": "fox", "cache_latents": True}),
    ],
)  # fmt: skip
def test_published_command_comes_back(script: str, words: str, options: dict[str, Any]) -> None:
    Path("data.toml").write_text(SETS["one folder at two sizes"], "utf-8")
    given = [word for word in line(script) if "train_data_dir" not in word and "resolution" not in word]
    first, again, written = come_back([*given, "--dataset_config=data.toml", *words.split()])
    assert again == first
    assert lost(written) == []
    assert {flag: options_of(written).get(flag) for flag in options} == options


def test_previews_are_a_file_of_prompts() -> None:
    prompts = ("--prompt", "a fox --n bad --w 768 --h 512 --d 7 --s 20 --l 6.5", "an owl", "--sample_every_n_epochs=2")
    first, again, written = come_back([*kohya.BAREST, *prompts, "--sample_sampler=k_dpm_2"])
    assert again == first
    assert lost(written) == []
    end = "--n bad --w 768 --h 512 --d 7 --s 20 --l 6.5 --ss dpm_2"
    assert written.files["prompts.txt"] == f"a fox {end}\nan owl {end}\n"
    assert "--sample_prompts=prompts.txt" in written.line
    assert options_of(written)["sample_at_first"] is True  # as Mezzotint always does
    Path("own.txt").write_text("a fox --w 640\n", "utf-8")
    first, again, written = come_back([*kohya.BAREST, "--sample_prompts=own.txt", "--sample_every_n_steps=5"])
    assert again == first
    assert options_of(written)["sample_prompts"] == "own.txt"
    _, _, written = come_back([*line("flux_train_network", *FLUX), "--prompt", "a fox --g 4", "--sample_at_first"])
    assert written.files["prompts.txt"] == "a fox --w 512 --h 512 --s 20 --g 4\n"


def test_batch_and_warm_up_of_several_processes() -> None:
    two = Launched(2)
    words = [*kohya.BAREST, "--train_batch_size=4", "--lr_scheduler=linear", "--lr_warmup_steps=100"]
    first, again, written = come_back(words, two)
    assert (first.data.batch_size, first.optim.schedule.warmup_steps) == (8, 50)
    assert again == first
    assert written.line[:3] == ("accelerate", "launch", "--num_processes=2")
    options = options_of(written)
    assert (options["train_batch_size"], options["lr_warmup_steps"]) == (4, 100)


# --- ours, foreign ----------------------------------------------------------------------------------------------------


def write(name: str, *changes: str) -> tuple[Recipe, WrittenRecipe]:
    recipe = read(name, ["data.path=photos", *changes]).recipe
    written = DIALECT.write_recipe(recipe, ALONE)
    for file, text in written.files.items():
        Path(file).write_text(text, "utf-8")
    return recipe, written


@pytest.mark.parametrize(
    ("name", "script", "noted", "kept"),
    [
        ("sd15", "train_db", ["optim.ema.rule='ramp' is lost: kohya has no EMA", "data.cache.crops=2 is lost"],
         {"stop_text_encoder_training": -1, "max_train_steps": 5000, "lr_warmup_steps": 100}),
        ("sd21-768-v", "train_db", ["objective.min_snr_form='x0' is lost: kohya uses 'prediction'"],
         {"v2": True, "gradient_accumulation_steps": 2, "zero_terminal_snr": True}),
        ("style", "train_network", ["data.captions.trigger='sks' is lost: caption_prefix and caption_suffix have its"],
         {"network_module": "networks.lora", "network_dim": 16, "network_train_unet_only": True}),
        ("sdxl-lora-8gb", "sdxl_train_network", ["run.micro_batch=1 is lost: a smaller train_batch_size with more"],
         {"fp8_base": True, "no_half_vae": True, "cache_text_encoder_outputs": None}),
        ("sdxl-24gb", "sdxl_train", ["optim.optimizer.kind='adafactor' is lost: optimizer_type names the most similar"],
         {"optimizer_type": "Adafactor", "optimizer_args": ["relative_step=False"]}),
        ("flux-lora-24gb", "flux_train_network",
         ["model.adapter.targets=['attention+mlp'] is lost: kohya uses ['all-linear']",
          "the scripts of flux read single files; name them in clip_l, t5xxl and ae"],
         {"timestep_sampling": "flux_shift", "guidance_scale": 1.0, "model_prediction_type": "raw",
          "network_args": ["split_qkv=True"]}),
        ("sd35-80gb", "sd3_train", ["objective.flow.preconditioned=false is lost: kohya uses true"],
         {"weighting_scheme": "logit_normal", "training_shift": 3.0}),
    ],
)  # fmt: skip
def test_our_recipe_differs_only_where_a_note_says_so(
    name: str, script: str, noted: list[str], kept: dict[str, Any]
) -> None:
    recipe, written = write(name)
    assert f"{script}.py" in written.line
    for start in noted:
        assert any(note.startswith(start) for note in written.notes), start
    again = read_line(written.line)
    different = find_differences(describe(recipe), describe(again))
    named = {note.partition("=")[0] for note in written.notes if " is lost: " in note}
    assert named <= different
    said_by_others = {"data.captions.prefix", "data.captions.suffix", "data.buckets.max_aspect", "model.flux.guidance"}
    of_kind = {path for path in different if path.startswith("optim.optimizer.")}
    unnamed = different - named - said_by_others - of_kind
    assert all(path.startswith(("run.", "sample.", "data.decode")) for path in unnamed), unnamed
    assert {flag: options_of(written).get(flag) for flag in kept} == kept


@pytest.mark.parametrize(
    "name", ["sd15-12gb", "sd15-lora", "sdxl", "sdxl-cached", "sdxl-lora", "sdxl-multi-aspect", "subject", "flux-80gb",
             "sd35-lora-24gb", "photos"],
)  # fmt: skip
def test_shipped_recipe_is_accepted(name: str) -> None:
    recipe, written = write(name)
    again = read_line(written.line)
    assert (again.model.family, again.model.train) == (recipe.model.family, recipe.model.train)
    assert (again.optim.lr, again.run.steps, again.run.epochs) == (recipe.optim.lr, recipe.run.steps, recipe.run.epochs)
    assert (again.data.batch_size, again.data.resolution) == (recipe.data.batch_size, recipe.data.resolution)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ("data.flip=0.3", "data.flip=0.3 is lost: flip_aug is on or off"),
        ("run.resume=runs/old", "run.resume=runs/old is lost: kohya continues from its own states only"),
        ("run.save.every=20 minutes",
         "run.save.every=['20 minutes'] is lost: save_state is for every saved model, or none"),
        ("data.captions.extension=any", "data.captions.extension='any' is lost: caption_extension is one of .txt and "
                                        ".caption"),
        ("model.adapter.kind=rslora", "model.adapter.kind='rslora' is lost: kohya uses 'lora'"),
        ("run.preview.every=9", "run.preview.every='9 steps' is lost: sample_prompts needs sample.prompts"),
        ("model.prediction=null", "model.prediction=null is lost: kohya reads it from v_parameterization, not from the "
                                  "model; write true if it predicts v"),
        ("data.buckets={shape: table}", "data.buckets.shape='table' is lost: kohya uses 'range'"),
        ("data.captions.lines=join", "data.captions.lines='join' is lost: kohya uses 'first'"),
        ("data.sets=[{path: a, weight: 0.5}, {path: b}]", "data.sets.0.weight=0.5 is lost: kohya uses 1"),
        ("data.format=image-folder",
         "data.format='image-folder' is lost: the scripts read the images directly in a folder"),
    ],
)  # fmt: skip
def test_what_kohya_lacks_is_noted(changes: str, note: str) -> None:
    path = [] if "data.sets" in changes else ["data.path=photos"]
    recipe = read("sd15-lora", [*path, changes]).recipe
    assert note in DIALECT.write_recipe(recipe, ALONE).notes


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("wan-lora-24gb", ["data.path=photos"],
         "kohya cannot train adapters of wan; it has sd, sdxl, flux, sd3, chroma"),
        ("z-image-80gb", ["data.path=photos"], "kohya cannot train all weights of z-image; it has sd, sdxl, flux, sd3"),
        ("sd15", ["data.path=null"], "the recipe has no data set; write data.path=FOLDER"),
        ("sd15", ["data.path=photos", "data.conditions={source: before}", "model.task=edit"],
         "kohya trains from text alone, and the recipe has data.conditions"),
        ("sd15", ["data.path=a.tar", "data.format=webdataset"],
         "kohya reads folders of images, and the recipe has data.format=webdataset"),
        ("sd15", ["data.sets=[{path: a}, {path: b}]", "data.format=kohya"],
         "kohya reads one folder of numbered folders, and the recipe has several; list the numbered folders in "
         "data.sets with data.format=kohya-subsets"),
        ("sd15", ["data.sets=[{path: a}, {path: b}]", "data.format=kohya-subsets",
                  "data.kohya_subsets.folders=[{path: a, metadata_file: a.json}]"],
         "a script of kohya for sd reads folders of images or metadata files, not both"),
        ("flux-80gb", ["data.path=photos", "model.train=[denoiser, text_encoder]", "data.cache.text=false"],
         "kohya cannot run a recipe with model.train=['denoiser', 'text_encoder']"),
        ("sd15", ["data.path=photos", "model.train=[tokens]", "optim.ema.rule=none",
                  "model.tokens.words={<a>: fox, <b>: owl}", "data.cache.text=false"],
         "kohya trains one token, and the recipe has 2"),
    ],
)  # fmt: skip
def test_recipe_that_it_cannot_run_is_refused(name: str, changes: list[str], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.write_recipe(read(name, changes).recipe, ALONE)
    assert (caught.value.code, caught.value.message) == ("E1026", message)


def test_captions_are_cached_if_each_has_one_encoding() -> None:
    reason = "SDXL, SD3 and FLUX.1 have a cache of captions that are neither dropped nor shuffled"
    note = f"data.cache.text=true is lost: {reason}"
    _, written = write("sdxl-lora")
    assert (note in written.notes, "cache_text_encoder_outputs" in options_of(written)) == (True, False)
    _, written = write("sdxl-lora", "data.captions.dropout=0")
    assert (note in written.notes, options_of(written)["cache_text_encoder_outputs"]) == (False, True)
    _, written = write("sd15-lora", "data.captions.dropout=0")
    assert note in written.notes


def test_words_of_a_template_are_around_the_caption() -> None:
    _, written = write(
        "sd15-lora", "data.captions={trigger: sks, template: 'a {trigger}, {caption} in {trigger} style'}"
    )
    general = tomllib.loads(written.files["dataset.toml"])["general"]
    assert (general["caption_prefix"], general["caption_suffix"]) == ("a sks,", "in sks style")
    _, written = write("sd15-lora", "data.captions={trigger: sks, prefix: best}")
    assert tomllib.loads(written.files["dataset.toml"])["general"]["caption_prefix"] == "sks best"


def test_several_base_sizes_are_data_sets_of_one_folder() -> None:
    _, written = write("sd15-lora", "data.resolution=[512, 640]")
    sets = tomllib.loads(written.files["dataset.toml"])["datasets"]
    assert [one["resolution"] for one in sets] == [512, 640]
    assert [one["subsets"] for one in sets] == [[{"image_dir": "photos"}]] * 2
    assert not any("resolution" in note for note in written.notes)


def test_prompts_are_lines_without_what_a_line_cannot_have() -> None:
    changes = (
        "sample.prompts=['a fox --w 9', '', '#1', \"two\\nlines\"]",
        "sample.size=[640, 512]",
        "run.preview.every=5",
    )
    _, written = write("sd15-lora", *changes)
    options = "--w 640 --h 512 --d 0 --s 20 --l 7.5 --ss ddim"
    assert written.files["prompts.txt"] == f"a fox -w 9 {options}\ntwo lines {options}\n"
    assert any(note.startswith("sample.prompts=") for note in written.notes)


def test_encoders_are_named_by_their_files() -> None:
    _, written = write("sd35-lora-24gb", "model.over=[t5xxl_fp16.safetensors, clip_g.safetensors]")
    options = options_of(written)
    assert (options["t5xxl"], options["clip_g"]) == ("t5xxl_fp16.safetensors", "clip_g.safetensors")
    assert "clip_l" not in options
    assert not any("single files" in note for note in written.notes)


def test_number_of_swapped_blocks_is_a_guess() -> None:
    _, written = write("flux-lora-24gb", "run.offload.blocks=auto")
    assert options_of(written)["blocks_to_swap"] == 18
    assert "blocks_to_swap is 18, a guess; a recipe's auto finds the number that fits" in written.notes


def test_cpu_is_an_option_of_the_launcher() -> None:
    _, written = write("sd15-lora", "run.device=cpu")
    assert written.line[:4] == ("accelerate", "launch", "--num_processes=1", "--cpu")
    assert read_line(written.line).run.device == "cpu"
