"""MindONE's document on vanilla fine-tuning from its first command to its last, at tiny size on a CPU: weights as a
MindSpore checkpoint, images in a table, the cache, training on it, merging, sampling; one process and two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import StableDiffusionXLPipeline
from PIL import Image
from safetensors.torch import load_file

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.compat.mindone.dialect import SHIPPED
from mezzotint.tasks.bench import bench
from support.forked import exit_status, fork, free_port, run_two
from support.run_folders import logged

IMAGES = Path(__file__).parents[2] / "parity" / "data" / "diffusers" / "shapes6"
YAML = "configs/training/sd_xl_base_finetune_910b.yaml"
CKPT = "checkpoints/sd_xl_base_1.0_ms.ckpt"


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory, sdxl_folder: Path) -> Path:
    """The files that MindONE's document starts from: checkpoints/, configs/, a folder of images with a .csv."""
    root = tmp_path_factory.mktemp("document")
    shutil.copytree(sdxl_folder, root / "model")
    (root / "checkpoints").mkdir()
    line = ["--task", "pt_to_ms", "--weight_safetensors", str(root / "model"), "--weight_ms", str(root / CKPT)]
    assert main(["convert", "--as", "mindone-sdxl", "--", "python", "convert_weight.py", *line]) == 0
    text = (SHIPPED / Path(YAML).name).read_text("utf-8")
    for old, new in (("1024", "64"), ("total_step: 100000", "total_step: 2"), ("[1, 2, 10]", "[1, 2]"),
                     ("num_parallel_workers: 2", "num_parallel_workers: 0"),
                     ("base_learning_rate: 1.0e-6", "base_learning_rate: 1.0e-5"),
                     ("warm_up_steps: 500", "warm_up_steps: 1")):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    path = root / YAML
    path.parent.mkdir(parents=True)
    path.write_text(text)
    shutil.copytree(IMAGES, root / "images")
    rows = [f'000{number}.png,"shape, number {number}"' for number in range(6)]
    (root / "images" / "img_txt.csv").write_text("\n".join(["dir,text", *rows]))
    return root


@pytest.fixture
def here(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a copy of these files."""
    shutil.copytree(document, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


OURS = ("model.config=model", "run.threads=1", "run.tensorboard=false")


def line(*more: str, level: str = "O0") -> list[str]:
    words = ["--config", YAML, "--weight", CKPT, "--data_path", "images", "--device_target", "CPU",
             "--ms_amp_level", level, "--save_path_with_time", "False"]  # fmt: skip
    return ["python", "train.py", *words, *more]


CACHED = ("--cache_latent", "True", "--cache_text_embedding", "True", "--cache_path", "./cache_data")


def run(command: str, *words: str, over: tuple[str, ...] = ()) -> int:
    return main([command, "--as", "mindone-sdxl", *OURS, *over, "--", *words])


@pytest.mark.slow
def test_documented_commands_fill_the_cache_and_train(
    here: Path, loaded: list[set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", *line("--task", "=", "cache", *CACHED)) == 0
    output = capsys.readouterr().out
    assert "this command line only encodes: mezzotint cache" in output
    assert not (here / "runs").exists(), "only the cache is written"
    assert set().union(*loaded) == {"vae", "text_encoder", "text_encoder_2"}
    loaded.clear()

    assert run("train", *line(*CACHED, "--save_path", "runs/cached")) == 0
    assert loaded == [{"denoiser"}]
    assert len(logged(here / "runs/cached")) == 2
    weights = here / "runs" / "cached" / "weights"
    trained = weights / "SDXL-base-1.0_2.safetensors"
    assert trained.is_file()
    assert (weights / "unet_2.ckpt").is_file(), "what the document merges"
    opened: Any = StableDiffusionXLPipeline.from_pretrained(str(weights / "SDXL-base-1.0_2"), local_files_only=True)
    unet = opened.unet.state_dict()
    base = load_file(here / "model" / "unet" / "diffusion_pytorch_model.safetensors")
    assert any(not torch.equal(unet[name], tensor) for name, tensor in base.items())


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_trained_unet_is_merged_and_sampled_from(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", *line(*CACHED, "--save_path", "runs/unet")) == 0
    assert run("train", *line("--data_path", "cache_data", "--save_path", "runs/none")) == 2
    output = " ".join(capsys.readouterr().err.split())
    assert "E1110" in output
    assert "cache_data is a cache of Mezzotint and" in output
    assert "in this command line: data.path is --data_path" in output
    file = Path("runs/unet/weights/unet_2.ckpt")
    laid = ["python", "train.py", "--config", YAML, "--weight", f"{CKPT},{file}", "--data_path", "images"]
    assert main(["check", "--as", "mindone-sdxl", *OURS, "--", *laid]) == 0
    merging = ["python", "tools/weight_merge/merge_weight.py", "--base_weight", CKPT, "--additional_weights", str(file)]
    assert main(["merge", "--as", "mindone-sdxl", "--config=model", "--", *merging]) == 0
    assert (here / "merged_weight.ckpt").is_file()
    drawing = ["python", "demo/sampling_without_streamlit.py", "--weight", "merged_weight.ckpt", "--prompt", "a shape",
               "--device_target", "CPU", "--ms_amp_level", "O0", "--sample_step", "1",
               "--sd_xl_base_ratios", "1.0_512"]  # fmt: skip
    ours = ["model.config=model", "--size=64x64"]
    generated = here / "outputs" / "demo" / "txt2img" / "SDXL-base-1.0"
    for more, there in (((), 1), (("--seed", "7", "--num_cols", "2"), 3)):
        before = {path.name: path.read_bytes() for path in generated.glob("*")}
        assert main(["sample", "--as", "mindone-sdxl", *ours, "--", *drawing, *more]) == 0
        names = sorted(path.name for path in generated.glob("0*.png"))
        assert names == [f"{number:09d}.png" for number in range(there)]
        assert all((generated / name).read_bytes() == content for name, content in before.items()), (
            "nothing is written over"
        )
    assert len({(generated / name).read_bytes() for name in names}) == 3
    with Image.open(generated / names[2]) as image:
        assert json.loads(image.info["mezzotint"])["seed"] == "8"


@pytest.mark.slow
def test_half_precision_has_a_static_loss_scale(here: Path) -> None:
    assert run("train", *line("--use_ema", "--clip_grad", "True", "--snr_gamma", "5.0", level="O2")) == 0
    run_lines = [one for one in outside.read_lines(here / "runs" / "metrics.jsonl") if "loss" in one]
    assert len(run_lines) == 2
    assert {one["scale"] for one in run_lines if "scale" in one} <= {1024.0}
    exports = here / "runs" / "weights"
    assert (exports / "SDXL-base-1.0_2.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_check_and_bench_accept_the_command(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("check", *line("--is_parallel", "True"), over=("--processes=2",)) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "1 on each of 2 cards: a batch of 2" in page
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")
    assert run("bench", *line(), over=("--as-written", "--steps=2", "--out=bench")) == 0
    [document] = (here / "bench").rglob("*.json")
    assert [row["steps"] for row in json.loads(document.read_text())["rows"]] == [2]


@pytest.mark.slow
def test_run_resumes_when_weight_names_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", *line("--save_path", "runs/mine")) == 0
    assert run("train", *line("--save_path", "runs/mine")) == 2
    assert "mezzotint train runs/mine/recipe.yaml" in capsys.readouterr().err
    text = (here / YAML).read_text()
    (here / YAML).write_text(text.replace("total_step: 2", "total_step: 3"))
    assert run("train", *line("--weight", "runs/mine", "--resume_step", "2", "--save_path", "elsewhere")) == 0
    assert not (here / "elsewhere").exists()
    assert len(logged(here / "runs" / "mine")) == 3


@pytest.mark.parametrize(
    ("change", "code", "expected"),
    [
        (("configs", "UNetModel", "UNetModle"), "E1080", "UNetModel"),
        (("images", "dir,text", "dir,caption"), "E12", "text"),
    ],
)
def test_invalid_files_are_reported(
    here: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str, str], code: str, expected: str
) -> None:
    path = here / YAML if change[0] == "configs" else here / "images" / "img_txt.csv"
    path.write_text(path.read_text().replace(*change[1:]))
    assert run("train", *line()) == 2
    message = capsys.readouterr().err
    assert code in message
    assert expected in message


def test_runtime_errors_name_the_flags_of_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", *line("--data_path", "nowhere")) == 2
    assert "in this command line: data.path is --data_path" in capsys.readouterr().err
    drawing = [
        "--weight",
        CKPT,
        "--prompt",
        "fox",
        "--task",
        "img2img",
        "--img",
        "images/0000.png",
        "--strength",
        "5",
    ]
    assert main(["sample", "--as", "mindone-sdxl", "--", *drawing]) == 2
    assert "in this command line: sample.strength is --strength" in capsys.readouterr().err
    assert main(["sample", "--as", "mindone-sdxl", "sample.strength=6", "--", *drawing]) == 2
    assert "of this line" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("launcher", ["accelerate", "mpirun"])
def test_command_trains_in_two_processes(here: Path, launcher: str) -> None:
    """The variables that the launcher sets, in forked processes."""
    words = ["train", "--as", "mindone-sdxl", *OURS, "run.steps=1", "--", *line("--is_parallel", "True")]
    if launcher == "mpirun":
        name, port = "OMPI_COMM_WORLD_", str(free_port())
        of_rank = [{f"{name}RANK": r, f"{name}SIZE": "2", f"{name}LOCAL_RANK": r, "MASTER_PORT": port} for r in "01"]
        children = [fork(words, here / "out.txt", {"GLOO_SOCKET_IFNAME": "lo", **env}) for env in of_rank]
        assert [exit_status(child) for child in children] == [0, 0], (here / "out.txt").read_text()
    else:
        run_two(words, here / "out.txt", ACCELERATE_USE_CPU="true")
    environment = json.loads((here / "runs" / "environment.json").read_text())
    assert (environment["processes"], environment["launcher"]) == (2, launcher)
