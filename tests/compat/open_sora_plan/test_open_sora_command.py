"""The command of Open-Sora-Plan's train_t2v.py: clips and images written here, a small LatteT2V in the release's
layout; killed and resumed, from an existing text cache, and sharded over two processes."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from latte_folder import write_release
from PIL import Image

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.compat.open_sora_plan import text_files as text_cache_npz
from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.data.files.caption_cleaning import cleaner
from mezzotint.data.formats.base import EmbeddingFile
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.bench import bench
from support.forked import exit_status, fork, run_two
from support.run_folders import assert_alike, logged, tensors_of

OURS = ("data.cache.path=cache", "data.workers=0", "run.threads=1", "run.tensorboard=false")
CAPTIONS = ("A Red Ball <br> example.com/ball.png", "A Green Ball", "A Blue Ball", "A Grey Ball")


@pytest.fixture(scope="module")
def world_of_clips(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    """Four clips, seven images, their lists, and a small model in the layout of the release: 5x32x32, vae, t5."""
    root = tmp_path_factory.mktemp("sora")
    for n in range(4):
        write_clip(root / f"films/{n}.mp4", 8 + n, size=(48, 32))
    (root / "images").mkdir()
    for n in range(7):
        Image.new("RGB", (40, 32 + n), (30 * n, 90, 200 - 20 * n)).save(root / f"images/{n}.png")
    clips = [{"path": f"{n}.mp4", "cap": caption, "frame_idx": "0:8"} for n, caption in enumerate(CAPTIONS)]
    (root / "clips.json").write_text(json.dumps(clips))
    (root / "clips.txt").write_text("films,clips.json\n")
    images = [{"path": f"{n}.png", "cap": f"image {n}"} for n in range(7)]
    (root / "images.json").write_text(json.dumps(images))
    (root / "images.txt").write_text("images,images.json\n")
    return write_release(root, "5x32x32")


@pytest.fixture
def here(world_of_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a copy of these files."""
    shutil.copytree(world_of_clips, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flags(**more: Any) -> list[str]:
    """The options of the command; those that are None are left out."""
    values = {
        "video_data": "clips.txt", "image_data": "images.txt", "use_image_num": 2, "num_frames": 5,
        "max_image_size": 32, "model_max_length": 24, "pretrained": "5x32x32", "ae_path": "vae",
        "text_embed_cache": False, "text_encoder_name": "t5", "use_recompute": True, "num_no_recompute": 1,
        "device": "cpu", "precision": "fp32", "vae_precision": "fp32", "text_encoder_precision": "fp32",
        "batch_size": 2, "max_train_steps": 4, "checkpointing_steps": 2, "start_learning_rate": "1e-3",
        "output_dir": "out",
    }  # fmt: skip
    return [f"--{key}={value}" for key, value in (values | more).items() if value is not None]


def line(*words: str, command: str = "train", over: tuple[str, ...] = ()) -> list[str]:
    return [command, "--as", "open-sora-plan", *OURS, *over, "--", *words]


@pytest.mark.slow
@pytest.mark.faults
def test_killed_run_resumes_bit_exactly_and_exports_both_models(here: Path) -> None:
    child = fork(line(*flags()), here / "said", {"MEZZOTINT_FAULT": "step.begin@3:kill"})
    assert exit_status(child) == 128 + signal.SIGKILL, (here / "said").read_text()
    assert main(line(*flags(resume_from_checkpoint=True))) == 0
    assert main(line(*flags(output_dir="whole"))) == 0
    mine, other = tensors_of(here / "out"), tensors_of(here / "whole")
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], tensor) for name, tensor in other.items())
    assert logged(here / "out") == logged(here / "whole")
    assert len(logged(here / "out")) == 4
    models = {path.name: path for path in (here / "out" / "ckpt").iterdir()}
    for suffix, prefix in (("", "w/denoiser/"), ("-ema", "ema/denoiser/")):
        family = Family.of(ModelSettings(family="latte", path=models[f"step-00000004{suffix}"]), only=["denoiser"])
        for name, tensor in family.parts()["denoiser"].state_dict().items():
            assert f"{prefix}{name}" not in mine or torch.equal(tensor, mine[f"{prefix}{name}"]), name


@pytest.mark.usefixtures("unmeasured")
def test_check_reads_the_command_and_its_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line(*flags(), command="check")) == 0
    page = " ".join(capsys.readouterr().out.split())
    for text in (
        "denoiser 167,504 trained", "4 clips, each with 2 of 7 images (groups)",
        "32×32×5 4 4 2", "an epoch has 2 batches, 2 steps", "length 4 steps",
    ):  # fmt: skip
        assert text in page, page


@pytest.mark.parametrize(
    ("strategy", "absent"), [("None", "*layernorm*"), ("unclip", "*label_emb* and *time_embed* and *emb_layers*")]
)
def test_parameter_groups_without_matching_names_are_noted(
    here: Path, capsys: pytest.CaptureFixture[str], strategy: str, absent: str
) -> None:
    alone = {"image_data": None, "use_image_num": None, "max_train_steps": 2, "checkpointing_steps": None}
    assert main(line(*flags(group_strategy=strategy, **alone), over=("run.preview.every=null",))) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert f"optim.optimizer.no_decay: {absent} name" in output
    assert len(logged(here / "out")) == 2
    assert "lr/denoiser.no_decay" in outside.read_lines(here / "out" / "metrics.jsonl")[0]


@pytest.mark.slow
def test_bench_measures_the_command(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")
    assert main(line(*flags(), command="bench", over=("--as-written", "--steps=2", "--out=bench"))) == 0
    [document] = (here / "bench").rglob("*.json")
    assert [(row["name"], row["steps"]) for row in json.loads(document.read_text())["rows"]] == [("as written", 2)]


@pytest.mark.usefixtures("unmeasured")
def test_minimal_command_reports_what_is_missing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line("--video_data=clips.txt", command="check")) == 2
    assert "LanguageBind/Open-Sora-Plan-v1.1.0`, or give a folder" in capsys.readouterr().err
    assert main(line("--video_data=clips.txt", "--ae_path=vae", command="check")) == 2
    output = capsys.readouterr()
    assert "not given: all weights are random" in output.out
    assert "line 1: 2 paths where 3 are needed: media folder,folder of embeddings,annotation.json" in output.err


@pytest.mark.parametrize(
    ("more", "files", "message"),
    [
        ({"num_frames": 4}, {}, "--num_frames  E1017 must be odd, got 4; write 3 or 5"),
        ({"image_data": None}, {}, "but there is no source of images; give a list with --image_data"),
        ({"use_img_from_vid": True, "use_image_num": 6}, {}, "6 images cannot be taken from 5 frames; write 5"),
        ({"video_data": "a.txt"}, {"a.txt": "\n"}, "a.txt: is empty; write a line for each data set"),
        ({"video_data": "a.txt"}, {"a.txt": "films,a.json", "a.json": '[{"path": "0.mp4"}]'},
         "a.json: entry 1: no 'cap'; it has 'path'"),
        ({"max_train_steps": 1}, {}, "an epoch has 2 steps, so run.whole_epochs leaves no step"),
    ],
)  # fmt: skip
def test_invalid_input_is_reported_with_a_remedy(
    here: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    assert main(line(*flags(**more))) == 2
    assert message in capsys.readouterr().err
    assert not (here / "out" / "checkpoints").exists()


def test_autoencoder_of_v1_0_is_recognized_by_its_layers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((here / "vae" / "config.json").read_text())
    config |= {"encoder_conv_in": "CausalConv3d", "encoder_resnet_blocks": ["ResnetBlock3D"] * 3}
    (here / "vae" / "config.json").write_text(json.dumps(config))
    assert main(line(*flags())) == 2
    assert "this may be another version (v1.0?): use the folder `vae` of" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("over", [(), ("run.shard.parameters=true",)], ids=["optim", "full"])
def test_two_sharded_processes_equal_one_and_one_resumes(here: Path, over: tuple[str, ...]) -> None:
    """A batch of 1 on each of two processes is one of 2; optimizer state, gradients and EMA are sharded, and weights on
    request."""
    plain = {"batch_size": 2, "max_train_steps": 2, "checkpointing_steps": 2, "lr_scheduler": "constant"}
    assert main(line(*flags(**plain, output_dir="one"))) == 0
    words = flags(**plain | {"batch_size": 1}, use_parallel=True, parallel_mode="optim")
    run_two(line(*words, over=over), here / "two", ACCELERATE_MIXED_PRECISION="no")
    assert_alike(tensors_of(here / "out"), tensors_of(here / "one"))
    assert logged(here / "out") == pytest.approx(logged(here / "one"), rel=1e-4)
    longer = plain | {"max_train_steps": 4}
    assert main(line(*flags(**longer, resume_from_checkpoint=True))) == 0
    assert main(line(*flags(**longer, output_dir="one", resume_from_checkpoint=True))) == 0
    assert len(logged(here / "out")) == 4
    assert_alike(tensors_of(here / "out"), tensors_of(here / "one"))


@pytest.fixture
def cached(here: Path) -> dict[str, Any]:
    """Options with a text cache whose folders are missing; no text encoder is named."""
    (here / "clips.txt").write_text("films,said/clips,clips.json\n")
    (here / "images.txt").write_text("images,said/images,images.json\n")
    return {"text_embed_cache": True, "text_encoder_name": None, "max_train_steps": 2}


@pytest.mark.usefixtures("unmeasured")
def test_missing_text_cache_prints_the_command_that_writes_it(
    here: Path, cached: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("train", "check"):
        assert main(line(*flags(**cached), command=command)) == 2
        output = capsys.readouterr().err
        assert "0-frame_idx-0:8.npz: does not exist, nor any other of 11 embeddings that the lists name" in output
        assert shlex.join(line("model.latte.text_encoder", command="cache")[:7])[:-1] in output
    printed = shlex.split(output.partition("write them with: mezzotint ")[2].partition("\n")[0])
    assert [word for word in printed if word.startswith("model.")] == ["model.latte.text_encoder=DeepFloyd/t5-v1_1-xxl"]
    printed[printed.index("model.latte.text_encoder=DeepFloyd/t5-v1_1-xxl")] = "model.latte.text_encoder=t5"
    assert main(printed) == 0
    output = capsys.readouterr().out
    assert "cache: 11 embeddings to write to files, with" in output
    stored = text_cache_npz.read(here / "said/clips/0-frame_idx-0:8.npz", length=24, width=32)
    family = Family.of(ModelSettings(family="latte", path=here / "5x32x32", latte={"text_encoder": here / "t5"}))
    encoded = family.encode_text([cleaner()(CAPTIONS[0])])
    assert encoded.mask is not None
    assert np.array_equal(stored.mask, encoded.mask[0].numpy())
    assert np.abs(stored.states - encoded.states[0].detach().numpy()).max() < 1e-5
    assert main(printed) == 0
    assert "to write" not in capsys.readouterr().out
    shutil.rmtree(here / "t5")
    assert main(line(*flags(**cached), command="check")) == 0
    assert main(line(*flags(**cached))) == 0
    assert len(logged(here / "out")) == 2


def test_embeddings_of_another_length_are_refused(
    here: Path, cached: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(4):
        text = EmbeddingFile(np.zeros((20, 32), np.float32), np.ones(20, np.uint8))
        text_cache_npz.write(here / f"said/clips/{n}-frame_idx-0:8.npz", text)
    assert main(line(*flags(**cached, image_data=None, use_image_num=0))) == 2
    assert "has 20 tokens, but the model needs 24; write the text cache again" in capsys.readouterr().err
