"""The commands of diffusers' textual inversion scripts, on tiny models and six images."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionPipeline
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.families.sd import Family

IMAGES = Path(__file__).parents[3] / "parity" / "data" / "diffusers" / "shapes6"
LINE = [
    "--train_data_dir=images", "--placeholder_token=<toy>", "--initializer_token=a", "--resolution=64",
    "--train_batch_size=2", "--max_train_steps=3", "--learning_rate=1e-2", "--seed=7", "--output_dir=toy",
    "--save_steps=2", "--checkpointing_steps=2", "--repeats=2", "--lr_warmup_steps=0",
]  # fmt: skip
OURS = ("data.cache.path=cache", "run.device=cpu", "run.threads=1", "run.tensorboard=false")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(IMAGES, tmp_path / "images", ignore=lambda folder, names: [n for n in names if "png" not in n])
    return tmp_path


def train(dialect: str, model: Path, *more: str) -> int:
    words = [f"--pretrained_model_name_or_path={model}", *LINE, *more]
    return main(["train", "--as", dialect, *OURS, "--", *words])


def test_learned_token_file_is_loaded_by_diffusers(
    here: Path, shallow_sd: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    plain = Family.encode_text
    monkeypatch.setattr(Family, "encode_text", lambda self, texts: seen.extend(texts) or plain(self, texts))
    more = ("--num_vectors=2", "--learnable_property=style")
    assert train("diffusers-textual-inversion", shallow_sd, *more) == 0
    assert "longer than the text encoder reads" not in capsys.readouterr().out
    output = {text for text in seen if text}
    assert all(text.endswith("in the style of <toy>") and "|" not in text for text in output), output
    assert len(output) > 1, "another template at each visit"
    [rows] = load_file(here / "toy" / "learned_embeds.safetensors").values()
    assert len(rows) == 2
    assert list((here / "toy").rglob("step-00000002/learned_embeds.safetensors"))
    pipe: Any = StableDiffusionPipeline.from_pretrained(shallow_sd, safety_checker=None)
    before = pipe.text_encoder.get_input_embeddings().weight.detach().clone()
    pipe.load_textual_inversion("toy", weight_name="learned_embeds.safetensors")
    table = pipe.text_encoder.get_input_embeddings().weight.detach()
    assert torch.equal(table[: len(before)], before)
    assert torch.equal(table[pipe.tokenizer.convert_tokens_to_ids("<toy>")], rows[0])


def test_sdxl_has_a_token_file_for_each_text_encoder(here: Path, sdxl_folder: Path) -> None:
    assert train("diffusers-textual-inversion-sdxl", sdxl_folder, "--center_crop") == 0
    for name in ("learned_embeds.safetensors", "learned_embeds_2.safetensors"):
        assert [*load_file(here / "toy" / name)] == ["<toy>"]
