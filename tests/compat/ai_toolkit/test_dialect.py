"""Commands of ai-toolkit, and files that are not jobs of a training it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_lines import ALONE, flat
from jobs import FLUX, job, notes, problems, settings, translate, write

from mezzotint.cli import main
from mezzotint.compat.ai_toolkit.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched


@pytest.mark.parametrize(
    "words",
    [
        ["job.yaml"],
        ["run.py", "job.yaml"],
        ["python", "run.py", "job.yaml"],
        ["accelerate", "launch", "run.py", "job.yaml", "-r", "-l", "a.log"],
        ["--config_file=job.yaml"],
        ["-n", "owl", "job.yaml"],
        ["job.json"],
        ["run.py", "inside"],
    ],
)
def test_file_may_be_named_in_several_ways(words: list[str]) -> None:
    write(job())
    write(json.dumps(job()), "job.json")
    Path("config").mkdir()
    write(job(), "config/inside.yaml")
    assert flat(DIALECT.translate(words, ALONE).settings) == settings()


def test_name_replaces_its_placeholder_everywhere() -> None:
    tree = job({"sample.prompts": ["[name] and a fox"], "trigger_word": "[name]"})
    tree["config"]["name"] = "[name]_lora"
    write(tree)
    translated = flat(DIALECT.translate(["job.yaml", "--name=owl"], ALONE).settings)
    assert translated["run.folder"] == "output/owl_lora"
    assert translated["sample.prompts"] == ["owl and a fox"]
    assert translated["data.captions.trigger"] == "owl"


@pytest.mark.parametrize(
    ("change", "where", "code", "words"),
    [
        ({"job": "extract"}, "job", "E1018", "`mezzotint extract` does that"),
        ({"job": "generate"}, "job", "E1018", "`mezzotint sample` does that"),
        ({"job": "mod"}, "job", "E1018", "rescales an adapter"),
        ({"job": "extensoin"}, "job", "E1017", "did you mean extension?"),
        ({"job": None}, "job", "E1017", "is missing; write job: extension"),
        ({"type": "slider"}, "config.process.0.type", "E1018", "concept slider, which Mezzotint does not have yet"),
        ({"type": "vae"}, "config.process.0.type", "E1018", "autoencoder"),
        ({"type": "sd_trainr"}, "config.process.0.type", "E1018", "did you mean sd_trainer?"),
        ({"type": None}, "config.process.0.type", "E1017", "is missing"),
        ({"arch": "hidream"}, "model.arch", "E1018", "needs HiDream, which Mezzotint does not have"),
        ({"arch": "fluxx"}, "model.arch", "E1017", "fluxx is not known; did you mean flux?"),
        ({"is_lumina2": True}, "model.is_lumina2", "E1018", "needs Lumina-Image 2"),
    ],
)
def test_other_jobs_are_one_error_by_name(change: dict[str, Any], where: str, code: str, words: str) -> None:
    tree = job({"surprise": 1})
    process = tree["config"]["process"][0]
    for key, value in change.items():
        target = tree if key == "job" else process if key == "type" else process["model"]
        target[key] = value
    [(named, given, message, line)] = problems(tree)
    assert (named, given) == (f"{where} in job.yaml", code)
    assert words in message
    assert line is not None or value is None


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("job: extension\nconfig: {name: a, process: [{type: sd_trainer}, {type: sd_trainer}]}", "config.process",
         "has 2 entries, and a run is one training"),
        ("model_type: FLUX\nepochs: 3", "job", "is missing"),
        ("job: extension\nconfig:\n  name: a\n process: 1", "job.yaml", "line 4"),
        ("job: extension\njob: extension\n", "job.yaml", "this key is given twice"),
    ],
)  # fmt: skip
def test_file_of_another_shape_is_one_error(text: str, where: str, words: str) -> None:
    [(named, _, message, _)] = problems(text)
    assert named in (where, f"{where} in job.yaml")
    assert words in message


def test_misspelt_keys_name_the_nearest_with_their_lines() -> None:
    tree = job({"train.lrr": 1, "datasets.0.flip_xx": True, "sampel": {}})
    tree["mta"] = {}
    found = problems(tree)
    text = Path("job.yaml").read_text("utf-8").splitlines()
    assert [(where, message) for where, _, message, _ in found] == [
        ("mta in job.yaml", "unknown key; did you mean meta?"),
        ("train.lrr in job.yaml", "unknown key; did you mean train.lr?"),
        ("sampel in job.yaml", "unknown key; did you mean sample?"),
        ("datasets.0.flip_xx in job.yaml", "unknown key; did you mean flip_x?"),
    ]
    for where, code, _, line in found:
        assert code == "E1016"
        assert line is not None
        assert text[line - 1].lstrip("- ").startswith(where.partition(" ")[0].rpartition(".")[2])


def test_wrong_types_and_bounds_are_reported_together() -> None:
    found = problems(
        job({"train.steps": "many", "train.lr": "fast", "datasets.0.num_repeats": [1], "train.dtype": "b"})
    )
    assert {code for _, code, *_ in found} == {"E1017"}
    assert sorted(where for where, *_ in found) == [
        "datasets.0.num_repeats in job.yaml", "train.dtype in job.yaml", "train.lr in job.yaml",
        "train.steps in job.yaml",
    ]  # fmt: skip
    [(where, _, message, _)] = problems(job({"datasets.0.resolution": [512, -5]}))
    assert (where, message) == ("datasets.0.resolution in job.yaml", "must be above 0, got -5")
    [(where, code, message, line)] = problems(job({"train.batch_size": 0}))
    assert (where, code, message) == ("train.batch_size in job.yaml", "E1017", "must be above 0, got 0")
    assert line is not None


def test_missing_model_or_name_is_named() -> None:
    tree = job()
    del tree["config"]["process"][0]["model"]["name_or_path"]
    assert [where for where, *_ in problems(tree)] == ["model.name_or_path in job.yaml"]
    tree = job()
    tree["config"]["name"] = "[name]"
    assert [where for where, *_ in problems(tree)] == ["config.name in job.yaml"]


def test_several_files_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RecipeError, match=r"reads one file, got a\.yaml b\.yaml"):
        DIALECT.translate(["run.py", "a.yaml", "b.yaml"], ALONE)
    assert main(["translate", "--as", "ai-toolkit", "--", "run.py", "none.yaml"]) == 2
    assert "none.yaml  E1017 cannot be read: No such file" in capsys.readouterr().err


def test_unknown_option_and_its_value_are_one_problem() -> None:
    write(job())
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(["run.py", "job.yaml", "--stesp", "10"], ALONE)
    assert [(problem.where, problem.message) for problem in caught.value.problems] == [("--stesp", "unknown flag")]


def test_words_of_yaml_1_1_are_switches() -> None:
    text = write(job({"datasets.0.flip_x": True}))
    Path(text).write_text(Path(text).read_text().replace("flip_x: true", "flip_x: yes"))
    assert flat(DIALECT.translate([text], ALONE).settings)["data.flip"] == 0.5


def test_several_processes_multiply_the_batch() -> None:
    translated = translate({"train.batch_size": 2}, launched=Launched(processes=4))
    assert flat(translated.settings)["data.batch_size"] == 8


def test_flow_families_need_flowmatch_and_others_ddpm() -> None:
    [(where, code, message, _)] = problems(job({"model.arch": "flux"}))
    assert (where, code) == ("train.noise_scheduler in job.yaml", "E1017")
    assert message == "is ddpm, and flux is a flow-matching model; write noise_scheduler: flowmatch"
    [(where, _, message, _)] = problems(job({"train.noise_scheduler": "flowmatch"}))
    assert "write noise_scheduler: ddpm" in message
    assert settings(FLUX)["model.family"] == "flux"
    assert any("8 has no effect for this model" in note for note in notes(FLUX))


UI = {
    "type": "diffusion_trainer", "device": "cuda", "sqlite_db_path": "./aitk_db.db", "trigger_word": None,
    "performance_log_every": 10, "training_folder": "output",
    "network": {"type": "lora", "linear": 32, "linear_alpha": 32, "conv": 16, "conv_alpha": 16,
                "lokr_full_rank": True, "lokr_factor": -1, "network_kwargs": {"ignore_if_contains": []}},
    "save": {"dtype": "bf16", "save_every": 250, "max_step_saves_to_keep": 4, "save_format": "diffusers",
             "push_to_hub": False},
    "datasets": [{
        "folder_path": "images", "mask_path": None, "mask_min_value": 0.1, "default_caption": "", "caption_ext": "txt",
        "caption_dropout_rate": 0.05, "cache_latents_to_disk": False, "is_reg": False, "network_weight": 1,
        "resolution": [512, 768, 1024], "controls": [], "shrink_video_to_frames": True, "num_frames": 1,
        "do_i2v": True, "flip_x": False, "flip_y": False}],
    "train": {
        "batch_size": 1, "bypass_guidance_embedding": True, "steps": 3000, "gradient_accumulation": 1,
        "train_unet": True, "train_text_encoder": False, "gradient_checkpointing": True, "noise_scheduler": "flowmatch",
        "optimizer": "adamw8bit", "timestep_type": "sigmoid", "content_or_style": "balanced",
        "optimizer_params": {"weight_decay": 0.0001}, "unload_text_encoder": False, "cache_text_embeddings": False,
        "lr": 0.0001, "ema_config": {"use_ema": False, "ema_decay": 0.99}, "skip_first_sample": False,
        "force_first_sample": False, "disable_sampling": False, "dtype": "bf16", "diff_output_preservation": False,
        "diff_output_preservation_multiplier": 1.0, "diff_output_preservation_class": "person",
        "switch_boundary_every": 1, "loss_type": "mse"},
    "logging": {"log_every": 1, "use_ui_logger": True},
    "model": {"name_or_path": "Tongyi-MAI/Z-Image", "quantize": True, "qtype": "qfloat8", "quantize_te": True,
              "qtype_te": "qfloat8", "arch": "zimage", "low_vram": True, "model_kwargs": {}},
    "sample": {"sampler": "flowmatch", "sample_every": 250, "width": 1024, "height": 1024, "neg": "", "seed": 42,
               "samples": [{"prompt": "a fox"}, {"prompt": "an owl"}], "walk_seed": True, "guidance_scale": 4,
               "sample_steps": 25, "num_frames": 1, "fps": 1},
}  # fmt: skip
"""A job as the user interface writes it, from its defaults for Z-Image."""


def test_file_of_the_user_interface_is_read() -> None:
    text = json.dumps({"job": "extension", "config": {"name": "fox", "process": [UI]}, "meta": {"name": "[name]"}})
    translated = flat(DIALECT.translate([write(text, "ui.json")], ALONE).settings)
    assert (translated["model.family"], translated["model.adapter.targets"]) == ("z-image", ["denoiser/layers.*"])
    assert (translated["data.resolution"], translated["run.frozen_dtype"]) == ([512, 768, 1024], "int8")
    assert (translated["sample.prompts"], translated["run.preview.every"]) == (["a fox", "an owl"], "250 steps")
