"""Settings files of the kohya_ss GUI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_lines import ALONE, flat

from mezzotint.compat.kohya import _gui_keys as keys
from mezzotint.compat.kohya._gui import expand_gui_file
from mezzotint.compat.kohya._rows import ROWS
from mezzotint.compat.kohya._scripts import SCRIPTS
from mezzotint.errors import Problem, RecipeError
from mezzotint.tasks.reading import foreign

COMMON: dict[str, Any] = {
    "pretrained_model_name_or_path": "model", "output_dir": "out", "output_name": "fox", "train_data_dir": "images",
    "reg_data_dir": "", "max_resolution": "512,512", "train_batch_size": 2, "epoch": 3, "max_train_epochs": "",
    "max_train_steps": 0, "learning_rate": 1e-4, "lr_scheduler": "cosine", "lr_warmup": 10, "optimizer": "AdamW",
    "optimizer_args": "weight_decay=0.1 betas=.9,.95", "caption_extension": ".txt", "enable_bucket": True,
    "bucket_no_upscale": False, "min_bucket_reso": 256, "max_bucket_reso": 1024, "cache_latents": True,
    "flip_aug": False, "keep_tokens": "0", "clip_skip": "1", "seed": "1234", "mixed_precision": "bf16",
    "save_precision": "bf16", "save_every_n_epochs": 1, "save_every_n_steps": 0, "noise_offset": 0.05,
    "noise_offset_type": "Original", "multires_noise_iterations": 8, "multires_noise_discount": 0.2, "min_snr_gamma": 0,
    "max_timestep": 1000, "min_timestep": False, "xformers": "xformers", "max_token_length": "75",
    "sample_every_n_steps": 0, "sample_prompts": "", "sample_sampler": "euler_a", "additional_parameters": "",
    "gradient_accumulation_steps": 1.0, "vae_batch_size": 0, "wandb_api_key": "", "huggingface_repo_id": "False",
    "model_list": "custom", "num_processes": 1, "multi_gpu": False, "v2": False,
}  # fmt: skip
"""Keys and values as the GUI saves them, texts for numbers included."""
LORA: dict[str, Any] = {
    **COMMON, "LoRA_type": "Standard", "network_dim": 8, "network_alpha": 4, "unet_lr": 1e-4, "text_encoder_lr": 5e-5,
    "conv_dim": 1, "conv_alpha": 1, "rank_dropout": 0, "module_dropout": 0, "block_dims": "", "factor": -1,
    "decompose_both": False, "LyCORIS_preset": "full", "stop_text_encoder_training": 0, "train_on_input": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def translate(tree: Any, *words: str) -> dict[str, Any]:
    Path("gui.json").write_text(tree if isinstance(tree, str) else json.dumps(tree, indent=1), "utf-8")
    return flat(foreign.find_dialect("kohya").translate(["gui.json", *words], ALONE).settings)


def problems(tree: Any, *words: str) -> list[Problem]:
    with pytest.raises(RecipeError) as caught:
        translate(tree, *words)
    return list(caught.value.problems)


def test_file_of_the_lora_tab_becomes_the_command_that_the_gui_starts() -> None:
    values = translate(LORA)
    expected = {
        "model.family": "sd", "model.adapter.rank": 8, "model.adapter.alpha": 4.0, "run.epochs": 3, "run.seed": 1234,
        "data.path": "images", "data.batch_size": 2, "data.resolution": 512, "data.buckets.shape": "range",
        "data.captions.extension": ".txt", "optim.schedule.warmup_ratio": 0.1,
        "objective.noise_offset": 0.05, "optim.optimizer.weight_decay": 0.1, "run.precision": "bf16",
    }  # fmt: skip
    assert {path: values.get(path) for path in expected} == expected
    assert "objective.pyramid_discount" not in values


@pytest.mark.parametrize(
    ("changes", "script"),
    [
        ({}, "train_network"), ({"sdxl": True}, "sdxl_train_network"), ({"LoRA_type": "Flux1"}, "flux_train_network"),
        ({"sd3_checkbox": True}, "sd3_train_network"), ({"flux1_checkbox": True}, "flux_train_network"),
        ({"LoRA_type": None}, "train_db"), ({"LoRA_type": None, "sdxl": True}, "sdxl_train"),
        ({"LoRA_type": None, "train_dir": "x"}, "fine_tune"),
        ({"LoRA_type": None, "train_dir": "x", "sdxl_checkbox": True}, "sdxl_train"),
        ({"LoRA_type": None, "token_string": "zxc"}, "train_textual_inversion"),
        ({"LoRA_type": None, "token_string": "zxc", "sdxl": True}, "sdxl_train_textual_inversion"),
    ],
)  # fmt: skip
def test_tab_and_model_decide_the_script(changes: dict[str, Any], script: str) -> None:
    tree = {key: value for key, value in {**LORA, **changes}.items() if value is not None}
    Path("gui.json").write_text(json.dumps(tree), "utf-8")
    command = expand_gui_file(["gui.json"])
    assert command is not None
    assert command.arguments[0] == f"--script={script}"


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        ({"max_train_epochs": 7, "max_train_steps": 100}, "run.epochs", 7),
        ({"max_train_steps": "100"}, "run.steps", 100),
        ({"lr_warmup_steps": 25}, "optim.schedule.warmup_steps", 25),
        ({"noise_offset_type": "Multires"}, "objective.pyramid_discount", 0.2),
        ({"noise_offset_type": "Multires"}, "objective.noise_offset", None),
        ({"text_encoder_lr": 0.0}, "model.train", ["denoiser"]),
        ({"unet_lr": 0}, "model.train", ["text_encoder"]),
        ({"unet_lr": 0, "text_encoder_lr": 0}, "model.train", ["denoiser", "text_encoder"]),
        ({"LoRA_type": "LyCORIS/LoKr", "conv_dim": 4}, "model.adapter.kind", "lokr"),
        ({"LoRA_type": "Kohya LoCon", "conv_dim": 4}, "model.adapter.targets",
         ["denoiser/all", "text_encoder/attention+mlp"]),
        ({"sample_every_n_steps": 20, "sample_prompts": "# x\na fox --w 768 --h 768"}, "sample.prompts", ["a fox"]),
        ({"sample_every_n_steps": 20, "sample_prompts": "a fox --w 768 --h 768"}, "sample.size", [768, 768]),
        ({"additional_parameters": "--min_snr_gamma 5 --output_name 'a b'"}, "objective.min_snr_gamma", 5.0),
        ({"max_data_loader_n_workers": "0"}, "data.workers", 0),
        ({"caption_dropout_rate": 0.05}, "data.captions.dropout", 0.05),
        ({"sdxl": True, "sdxl_cache_text_encoder_outputs": True, "text_encoder_lr": 0}, "data.cache.text", True),
    ],
)  # fmt: skip
def test_keys_of_the_gui(changes: dict[str, Any], path: str, expected: Any) -> None:
    assert translate({**LORA, **changes}).get(path) == expected


def test_keys_of_one_family_act_for_it_only() -> None:
    tree = {**LORA, "clip_l": "clip.safetensors", "sd3_clip_l": "other.safetensors", "model_prediction_type": "raw"}
    assert translate({**tree, "LoRA_type": "Flux1"})["model.over"] == ["clip.safetensors"]
    assert translate({**LORA, "sd3_clip_l": "other.safetensors", "sd3_checkbox": True})["model.over"] == [
        "other.safetensors"
    ]
    assert "model.over" not in translate(tree)


def test_finetuning_tab_has_a_metadata_file_and_buckets() -> None:
    tree = {**COMMON, "train_dir": "./work/", "caption_metadata_filename": "cap.json", "image_folder": "pictures",
            "latent_metadata_filename": "lat.json", "use_latent_files": "No", "dataset_repeats": "4",
            "enable_bucket": False, "train_text_encoder": True}  # fmt: skip
    del tree["train_data_dir"]
    values = translate(tree)
    assert (values["data.path"], values["data.repeats"], values["data.buckets.shape"]) == ("pictures", 4.0, "range")
    assert values["data.kohya_subsets.metadata_file"] == "./work/cap.json"
    assert translate({**tree, "use_latent_files": "Yes"})["data.kohya_subsets.metadata_file"] == "./work/lat.json"


def test_textual_inversion_tab_has_templates() -> None:
    tree = {
        **COMMON,
        "token_string": "zxc",
        "init_word": "cat",
        "num_vectors_per_token": 8,
        "template": "style template",
    }
    values = translate(tree)
    assert values["model.tokens.words"] if "model.tokens.words" in values else values["model.tokens.words.zxc"] == "cat"
    assert values["data.captions.wildcards"] is True
    assert "data.captions.template" not in translate({**tree, "template": "caption"})


def test_words_after_the_file_override_it() -> None:
    assert translate(LORA, "--network_dim=16")["model.adapter.rank"] == 16


@pytest.mark.parametrize(
    ("changes", "key", "code", "text"),
    [
        ({"network_dimm": 3}, "network_dimm", "E1016", "did you mean network_dim?"),
        ({"train_batch_size": "x"}, "train_batch_size", "E1017", "must be an integer, got 'x'"),
        ({"lr_warmup": "abc"}, "lr_warmup", "E1017", "must be a number"),
        ({"lr_warmup": float("inf")}, "lr_warmup", "E1017", "must be a number"),
        ({"lr_warmup": [float("inf")]}, "lr_warmup", "E1017", "must be a number"),
        ({"LoRA_type": "LyCORIS/LoKrr"}, "LoRA_type", "E1017", "did you mean LyCORIS/LoKr?"),
        ({"LoRA_type": ["Standard"]}, "LoRA_type", "E1017", 'must be a text, got ["Standard"]'),
        ({"max_resolution": [512, 512]}, "max_resolution", "E1017", "must be one value"),
        ({"additional_parameters": "--x 'a"}, "additional_parameters", "E1017", "quotation mark"),
    ],
)
def test_wrong_keys_are_named_with_their_line(changes: dict[str, Any], key: str, code: str, text: str) -> None:
    tree = {**LORA, **changes}
    [problem] = problems(tree)
    assert (problem.where, problem.code, problem.line) == (f"{key} in gui.json", code, list(tree).index(key) + 2)
    assert text in f"{problem.message} {problem.remedy}"


@pytest.mark.parametrize(
    ("changes", "where", "code"),
    [
        ({"color_aug": True}, "color_aug in gui.json", "E1018"),
        ({"network_dim": 0}, "network_dim in gui.json", "E1017"),
        ({"LoRA_type": "LyCORIS/GLoRA"}, "network_args in gui.json", "E1018"),
    ],
)
def test_problems_of_options_name_the_file(changes: dict[str, Any], where: str, code: str) -> None:
    assert [(problem.where, problem.code) for problem in problems({**LORA, **changes})] == [(where, code)]


def test_part_of_a_run_cannot_train_the_text_encoder() -> None:
    [problem] = problems({**COMMON, "stop_text_encoder_training": 50})
    assert (problem.where, problem.code) == ("stop_text_encoder_training in gui.json", "E1018")
    assert "learned" not in str(problem)
    flux = {**COMMON, "token_string": "x", "flux1_checkbox": True}
    assert "have no textual inversion for this model" in problems(flux)[0].message


@pytest.mark.parametrize(
    ("content", "message"), [("[]", "is not a settings file of the GUI"), ('{"a": 1, "a": 2}', "has a more than once"),
                             ("{", "line 1 is not JSON")]
)  # fmt: skip
def test_other_files_are_refused(content: str, message: str) -> None:
    assert message in problems(content)[0].message


def test_several_processes_are_started_by_torchrun() -> None:
    with pytest.raises(RecipeError, match=r"torchrun --nproc-per-node 2 -m mezzotint train --as kohya -- "):
        translate({**LORA, "num_processes": 2, "multi_gpu": True})


def test_toml_file_of_options_is_a_config_file() -> None:
    text = "pretrained_model_name_or_path = 'm'\ntrain_data_dir = 'images'\nresolution = '512'\noutput_dir = 'out'\n"
    Path("a.toml").write_text(f"{text}network_module = 'networks.lora'\n", "utf-8")
    arguments = ["a.toml", "--script=train_network", "--network_dim=9"]
    assert foreign.find_dialect("kohya").translate(arguments, ALONE).settings["model"]["adapter"]["rank"] == 9


def test_tables_name_existing_options_and_scripts() -> None:
    flags = {row.flag for row in ROWS}
    assert {*keys.RENAMED.values(), *(flag for _, flag in keys.FAMILY_RENAMED.values())} <= flags
    assert flags >= keys.UNSET_AT_ZERO
    assert {name for names in keys.SCRIPTS.values() for name in names.values()} <= SCRIPTS.keys()
    arguments = {key for _, _, always, optional in keys.ADAPTERS.values() for key in (*always, *optional)}
    assert arguments <= keys.ELSEWHERE
    assert {*keys.RENAMED, *keys.FAMILY_RENAMED, *keys.ELSEWHERE} >= keys.UNVERIFIED
