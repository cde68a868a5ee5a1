"""MindONE's conversion, merging and sampling tools as commands of ours: the documented commands, every flag, and what
is refused."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from mezzotint.compat.mindone._tools import SAMPLERS
from mezzotint.compat.mindone._tools import SHIPPED as INFERENCE
from mezzotint.compat.mindone.dialect import DIALECT, SHIPPED
from mezzotint.errors import RecipeError

TOOLS = {tool.verb: tool for tool in DIALECT.tools}
WEIGHT = "checkpoints/sd_xl_base_1.0_ms.ckpt"

DEFAULTS: dict[str, Any] = {
    "task": "txt2img", "config": "configs/inference/sd_xl_base.yaml", "negative_prompt": "",
    "support_long_prompts": False, "sd_xl_base_ratios": "1.0", "orig_width": None, "orig_height": None,
    "target_width": None, "target_height": None, "crop_coords_top": None, "crop_coords_left": None,
    "aesthetic_score": 6.0, "negative_aesthetic_score": 2.5, "sampler": "EulerEDMSampler", "guider": "VanillaCFG",
    "guidance_scale": 5.0, "thresholding": False, "dynamic_thresholding_ratio": 0.995, "sample_max_value": 1.0,
    "discretization": None, "sigma_min": 0.002, "sigma_max": 80, "rho": 7, "sample_step": 40, "num_rows": 1,
    "num_cols": 1, "seed": 42, "deterministic": True, "init_latent_path": None, "init_noise_scheduler_path": None,
    "precision_keep_origin_dtype": False, "save_path": "outputs/demo/", "img": None, "strength": 0.75,
    "add_pipeline": False, "stage2strength": 0.15, "finish_denoising": True, "low_threshold": 100,
    "high_threshold": 200, "ms_mode": 1, "ms_jit": True, "ms_amp_level": "O2",
}  # fmt: skip


def words(command: str, line: str) -> list[str]:
    return DIALECT.translate_tool(command, shlex.split(line.replace("\\\n", " ")))[0]


def changed(line: str) -> list[str]:
    """The words of a `sample` command that the shortest one does not have."""
    plain = words("sample", "--prompt 'a fox'")
    return [word for word in words("sample", f"--prompt 'a fox' {line}") if word not in plain]


def notes(command: str, line: str) -> str:
    return "\n".join(str(note) for note in DIALECT.translate_tool(command, shlex.split(line))[1])


def test_documented_merge_is_translated() -> None:
    line = """python tools/weight_merge/merge_weight.py \\
  --base_weight checkpoints/sd_xl_base_1.0_ms.ckpt \\
  --additional_weights unet.ckpt"""
    assert words("merge", line) == [WEIGHT, "unet.ckpt", "./merged_weight.ckpt"]
    more = words("merge", "--base_weight=a --additional_weights=b.ckpt,c.ckpt --save_path=d.ckpt")
    assert more == ["a", "b.ckpt", "c.ckpt", "d.ckpt"]


def test_documented_sampling_is_translated() -> None:
    line = """python demo/sampling_without_streamlit.py \\
  --weight /path_to/merged_weight.ckpt \\
  --prompt "your prompt\""""
    assert words("sample", line) == [
        "/path_to/merged_weight.ckpt", "--prompt=your prompt", "sample.unconditional=zeros", "--size=1024x1024",
        "--steps=40", "--guidance=5", "--solver=euler", "--seed=42", "--spacing=stability", "model.family=sdxl",
        "run.precision=fp16", "run.frozen_dtype=same", "run.vae_dtype=fp32",
        "--numbered", "--out=outputs/demo/txt2img/SDXL-base-1.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("pt_to_ms", ["a.safetensors", "b.ckpt", "--dtype=fp32"]),
        ("st_to_ms", ["a.safetensors", "b.ckpt", "--dtype=fp32"]),
        ("ms_to_pt", ["b.ckpt", "a.safetensors"]), ("ms_to_st", ["b.ckpt", "a.safetensors"]),
    ],
)  # fmt: skip
def test_conversions_are_translated_in_both_directions(task: str, expected: list[str]) -> None:
    line = f"--task {task} --weight_safetensors a.safetensors --weight_ms b.ckpt --key_torch keys.yaml --key_ms k.yaml"
    assert words("convert", f"python tools/model_conversion/convert_weight.py {line}") == expected
    assert "the names of tensors are known" in notes("convert", line)


def test_sampler_flags_have_the_documented_defaults() -> None:
    rows = {row.flag: row.default for row in TOOLS["sample"].rows}
    assert {flag: rows[flag] for flag in DEFAULTS} == DEFAULTS
    assert all(row.about for tool in TOOLS.values() for row in tool.rows)


@pytest.mark.parametrize(("name", "ours"), SAMPLERS.items())
def test_samplers_are_translated_by_name(name: str, ours: str) -> None:
    assert f"--solver={ours}" in words("sample", f"--sampler {name}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--sd_xl_base_ratios 1.46", ["--size=1216x832"]),
        ("--sample_step 9000", ["--steps=1000"]),
        ("--guidance_scale 200", ["--guidance=100"]),
        ("--guider IdentityGuider", ["--guidance=1"]),
        ("--seed 7 --num_cols 3", ["--seed=7,8,9"]),
        ("--thresholding True", ["sample.thresholding.ratio=0.995", "sample.thresholding.max=1"]),
        ("--discretization EDMDiscretization", ["sample.sigmas=edm", "sample.sigma_min=0.002", "sample.sigma_max=80",
                                                "sample.rho=7"]),
        ("--discretization DiffusersDDPMDiscretization", ["--spacing=leading"]),
        ("--discretization LegacyDDPMDiscretization", []),
        ("--orig_width 640 --orig_height 480", ["sample.micro_conditioning.original_size=[640,480]"]),
        ("--target_width 512 --target_height 768", ["sample.micro_conditioning.target_size=[512,768]"]),
        ("--crop_coords_top 8", ["sample.micro_conditioning.crop_top_left=[8,0]"]),
        ("--aesthetic_score 7", ["sample.micro_conditioning.aesthetic_score=7"]),
        ("--task img2img --img cat.png --strength 0.5", ["sample.image=cat.png", "sample.strength=0.5",
                                                         "--out=outputs/demo/img2img/SDXL-base-1.0"]),
        ("--weight base.ckpt,unet_9.ckpt,more.ckpt", ["base.ckpt", 'model.over=["unet_9.ckpt","more.ckpt"]']),
        ("--add_pipeline True --pipeline_weight r.ckpt --finish_denoising False", [
            "sample.refiner.path=r.ckpt", "sample.refiner.strength=0.15", "sample.refiner.finish=false"]),
        ("--config configs/inference/sd_xl_refiner.yaml --negative_prompt blurry", [
            "sample.unconditional=caption", "--negative=blurry", "--out=outputs/demo/txt2img/SDXL-refiner-1.0"]),
        ("--device_target CPU", ["run.device=cpu"]),
        ("--save_path out", ["--out=out/txt2img/SDXL-base-1.0"]),
        ("--weight mine.safetensors", ["mine.safetensors"]),
    ],
)  # fmt: skip
def test_sampler_flags_are_translated(line: str, expected: list[str]) -> None:
    assert changed(line) == expected


def test_precision_and_prompt_file_are_translated(tmp_path: Path) -> None:
    assert not any(word.startswith("run.") for word in words("sample", "--ms_amp_level O0"))
    path = tmp_path / "prompts.txt"
    path.write_text("a fox\na cat\n")
    assert f"--file={path}" in words("sample", f"--prompt {path}")
    assert "does not use a negative prompt" in notes("sample", "--negative_prompt blurry")
    assert "made once; in MindONE, twice by mistake" in notes("sample", "--sampler LinearMultistepSampler")
    assert "is for --discretization EDMDiscretization" in notes("sample", "--rho 5")
    assert "is for --task img2img" in notes("sample", "--strength 0.5")
    begun = "--task img2img --img cat.png"
    assert not [word for word in words("sample", begun) if word.startswith("--size")]
    assert "img2img keeps the size of the image" in notes("sample", f"{begun} --sd_xl_base_ratios 1.46")


@pytest.mark.parametrize(("name", "is_refiner"), [("sd_xl_base", False), ("sd_xl_refiner", True)])
def test_sampling_yaml_files_ship_without_a_loss(tmp_path: Path, name: str, is_refiner: bool) -> None:
    text = (INFERENCE / f"{name}.yaml").read_text("utf-8")
    assert not any(word in text for word in ("loss_fn_config", "sigma_sampler_config", "optim:", "use_recompute"))
    absent = words("sample", f"--prompt 'a fox' --config configs/inference/{name}.yaml")
    assert "the file of that name that ships" in notes("sample", f"--config configs/inference/{name}.yaml")
    assert "ships" not in notes("sample", "--prompt fox")
    path = tmp_path / "configs" / "inference" / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(text.replace("dropout: 0.0", "dropout: 0.0\n          decoder_attn_dtype: fp16"))
    assert words("sample", f"--prompt 'a fox' --config configs/inference/{name}.yaml") == absent
    assert ("--out=outputs/demo/txt2img/SDXL-refiner-1.0" in absent) == is_refiner
    path.write_text(text.replace("EpsScaling", "VScaling"))
    assert "model.prediction=v" in words("sample", f"--config configs/inference/{name}.yaml")


def test_sampler_yaml_is_used_where_it_exists(tmp_path: Path) -> None:
    text = (SHIPPED / "sd_xl_base_finetune_910b.yaml").read_text("utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("EpsScaling", "VScaling").replace("EpsWeighting", "VWeighting"))
    assert changed(f"--config {path}") == ["model.prediction=v"]
    path.write_text(text.replace("disable_first_stage_amp: True", "disable_first_stage_amp: False"))
    assert changed(f"--config {path}") == ["run.vae_dtype=same"]
    path.write_text(text.replace("UNetModel", "UNetModle"))
    with pytest.raises(RecipeError, match="the nearest denoising network is UNetModel"):
        words("sample", f"--config {path}")


@pytest.mark.parametrize(
    ("command", "line", "where"),
    [
        ("merge", "--base_weight a", "--additional_weights"),
        ("convert", "--task pt_to_pt --weight_safetensors a --weight_ms b", "--task"),
        ("sample", "--sampler EulerSampler", "--sampler"),
        ("sample", "--task img2img", "--img"),
        ("sample", "--num_cols 11", "--num_cols"),
        ("sample", "--sd_xl_base_ratios 7", "--sd_xl_base_ratios"),
        ("sample", "--orig_width 5", "--orig_height"),
        ("sample", "--controlnet_mode canny", "--controlnet_mode"),
        ("sample", "--textual_inversion_weight x", "--textual_inversion_weight"),
        ("sample", "--support_long_prompts True", "--support_long_prompts"),
        ("sample", "--smaple_step 3", "--smaple_step"),
    ],
)
def test_unsupported_values_are_reported_by_flag(command: str, line: str, where: str) -> None:
    with pytest.raises(RecipeError) as caught:
        words(command, line)
    assert [problem.where for problem in caught.value.problems] == [where]


def test_wrong_command_or_script_is_reported() -> None:
    with pytest.raises(
        RecipeError, match="is for the commands train, cache, check, bench, convert, merge, sample, not for"
    ):
        words("explain", "x")
    with pytest.raises(RecipeError, match=r"reads commands of merge_weight\.py, not of train\.py"):
        words("merge", "python train.py --x 1")
