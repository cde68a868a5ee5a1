"""SDXL on a CPU: cached, trained on the cache, killed, resumed, merged, sampled.

One run folder is used by all tests, one for each stage; each stage needs the previous one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.sampling.image_files import read_record

STEPS = 6


@pytest.fixture(scope="module")
def settings(sdxl_folder: Path) -> dict[str, Any]:
    return {
        "model__family": "sdxl",
        "model__path": sdxl_folder,
        "model__weights": "files",
        "data__buckets__shape": "list",
        "data__buckets__sizes": [[48, 48], [48, 64], [64, 48]],
        "data__cache__latents": True,
        "data__cache__text": True,
        "data__cache__crops": 2,
        "run__seed": 1,
        "run__steps": STEPS,
        "run__save__every": 2,
        "run__export__parts": "trained",
        "run__export__name": "{what}_{micro_step}{ema}",
        "optim__ema__rule": "none",
    }


def entries_of(output: str) -> tuple[int, int]:
    """Present and added entries, as printed."""
    [(there, number)] = re.findall(r", (\d+) present, (?:(\d+) added|nothing to add)", output)
    return int(there), int(number or 0)


def test_data_set_is_cached(shared_world: Any, settings: dict[str, Any], loaded: list[set[str]], capsys: Any) -> None:
    assert shared_world.train("filling", verb="cache", **settings) == 0
    there, number = entries_of(capsys.readouterr().out)
    assert there == 0
    assert number >= 11 + 10
    assert loaded == [{"vae"}, {"text_encoder", "text_encoder_2"}]


@pytest.mark.faults
def test_killed_run_on_the_cache_resumes_bit_exactly(
    shared_world: Any, settings: dict[str, Any], loaded: list[set[str]], capsys: Any
) -> None:
    assert shared_world.wait(shared_world.fork("run", fault="step.begin@4:kill", **settings)) == 137
    assert "vae not loaded (cached)" in shared_world.out("run")
    assert not list((shared_world.root / "run" / "checkpoints").glob(f"step-{STEPS:08d}"))
    assert shared_world.train("run", **settings) == 0
    assert entries_of(capsys.readouterr().out)[1] == 0
    assert loaded == [{"denoiser"}], "no VAE and no text encoder"
    assert shared_world.train("undisturbed", **settings) == 0
    assert shared_world.end("run") == shared_world.end("undisturbed")


def test_denoiser_of_the_resumed_run_is_merged_and_sampled(shared_world: Any, sdxl_folder: Path, capsys: Any) -> None:
    root = shared_world.root
    [file] = (root / "run" / "exports").glob("unet_*.safetensors")
    merged = root / "merged"
    assert main(["merge", str(sdxl_folder), str(file), str(merged)]) == 0
    tensors = load_file(merged / "unet" / "diffusion_pytorch_model.safetensors")
    trained = load_file(root / "run" / "checkpoints" / f"step-{STEPS:08d}" / "weights.safetensors")
    assert {f"w/denoiser/{name}" for name in tensors} == set(trained)
    assert all(torch.equal(tensor, trained[f"w/denoiser/{name}"]) for name, tensor in tensors.items())
    capsys.readouterr()
    assert main(["sample", str(file), "--prompt=x", "run.device=cpu"]) != 0
    assert "mezzotint merge MODEL FILE NEW_FILE" in capsys.readouterr().err
    words = ["--prompt=a red circle", "--size=32x32", "--steps=2", "--spacing=stability", "--solver=heun"]
    words.append("run.device=cpu")
    assert main(["sample", str(merged), *words, f"--out={root / 'of-merged'}"]) == 0
    assert main(["sample", str(sdxl_folder), f"model.over={file}", *words, f"--out={root / 'of-both'}"]) == 0
    [one], [other] = [[Image.open(path) for path in (root / name).glob("0*.png")] for name in ("of-merged", "of-both")]
    assert "is of family sdxl" in capsys.readouterr().out
    assert one.tobytes() == other.tobytes()
    chosen = {"family": "sdxl", "spacing": "stability", "solver": "heun", "unconditional": "zeros"}
    assert chosen.items() <= read_record(one).items()
    assert len(set(one.tobytes())) > 1
