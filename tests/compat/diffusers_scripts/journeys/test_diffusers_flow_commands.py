"""The commands of diffusers' DreamBooth scripts for flow-matching models with their launcher, on tiny folders of the
real classes. The results are opened by the model's own pipeline."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from prepared_commands import OURS, folder_of_model, images, line
from safetensors import safe_open
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.tasks.bench import bench
from mezzotint.weights.files.tensor_files import read_metadata
from support.forked import run_two
from support.run_folders import tensors_of

ADAPTERS = {
    "flux": ["attn.to_k", "attn.to_q", "attn.to_v", "attn.to_out.0", "attn.add_k_proj", "attn.add_q_proj",
             "attn.add_v_proj", "attn.to_add_out", "ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj",
             "ff_context.net.2"],
    "flux2-klein": ["to_k", "to_q", "to_v", "to_out.0", "to_qkv_mlp_proj",
                    *(f"single_transformer_blocks.{i}.attn.to_out" for i in range(24))],
    "qwen-image": ["to_k", "to_q", "to_v", "to_out.0"],
    "z-image": ["to_k", "to_q", "to_v", "to_out.0"],
    "sd3": ["attn.add_k_proj", "attn.add_q_proj", "attn.add_v_proj", "attn.to_add_out", "attn.to_k", "attn.to_out.0",
            "attn.to_q", "attn.to_v"],
}  # fmt: skip
"""What each script hands to peft as `target_modules`."""
DISTILLED = {"z-image": ("model.z_image.distilled=true",)}
QUICK = ("flux",)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images(tmp_path / "cat", 20, 90, 160, 230)


def train(dialect: str, *words: str, ours: tuple[str, ...] = ()) -> int:
    return main(["train", "--as", dialect, *OURS, *ours, "--", *line(dialect, *words)])


def opened(folder: Path) -> Any:
    from diffusers import DiffusionPipeline

    return DiffusionPipeline.from_pretrained(str(folder), local_files_only=True)


def losses() -> list[float]:
    steps = [json.loads(text) for text in Path("out/metrics.jsonl").read_text().splitlines()]
    return [step["loss"] for step in steps if "loss" in step]


@pytest.mark.parametrize(
    "model", [model if model in QUICK else pytest.param(model, marks=pytest.mark.slow) for model in ADAPTERS]
)
def test_lora_command_writes_the_file_that_peft_expects(model: str) -> None:
    """The layers are those that peft finds by the script's own list. The strength alpha / rank is in the tensors, which
    were trained with it: the effective alpha / rank is 1."""
    from peft import LoraConfig

    dialect = f"diffusers-dreambooth-lora-{model}"
    alpha = () if model == "sd3" else ("--lora_alpha=6",)
    assert train(dialect, "--rank=3", *alpha, ours=DISTILLED.get(model, ())) == 0
    assert len(set(losses())) == 2
    pipeline = opened(folder_of_model(dialect))
    bare = copy.deepcopy(pipeline.transformer)
    bare.add_adapter(LoraConfig(r=3, target_modules=ADAPTERS[model]))
    expected = {name for name, module in bare.named_modules() if hasattr(module, "lora_A")}
    pipeline.load_lora_weights("out")
    loaded = {n: m for n, m in pipeline.transformer.named_modules() if hasattr(m, "lora_A")}
    assert loaded.keys() == expected
    [(strength, rank)] = {(m.scaling["default_0"], m.r["default_0"]) for m in loaded.values()}
    assert (strength, rank) == (1.0, 3)
    alphas = read_metadata(next(Path("out").glob("*.safetensors"))).get("mezzotint.alpha")
    assert alphas == (None if model == "sd3" else '{"transformer": 6.0}')
    assert max(float(m.lora_B["default_0"].weight.detach().abs().max()) for m in loaded.values()) > 0


@pytest.mark.slow
def test_full_training_command_exports_the_pipeline() -> None:
    """With the trained text encoders."""
    dialect = "diffusers-dreambooth-sd3"
    assert train(dialect, "--train_text_encoder", "--text_encoder_lr=1e-3") == 0
    pipeline, before = opened(Path("out")), opened(folder_of_model(dialect))
    trained = {name.removeprefix("w/"): tensor for name, tensor in tensors_of(Path("out")).items()}
    for part, name in (("denoiser", "transformer"), ("text_encoder", "text_encoder")):
        state, old = getattr(pipeline, name).state_dict(), getattr(before, name).state_dict()
        assert any(not torch.equal(state[key], old[key]) for key in state), part
        assert all(torch.equal(state[key], trained[f"{part}/{key}"]) for key in state if f"{part}/{key}" in trained)
    for key, tensor in pipeline.text_encoder_3.state_dict().items():
        assert torch.equal(tensor, before.text_encoder_3.state_dict()[key]), "T5 is not trained"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sd3", "flux"])
def test_text_encoder_adapters_are_in_the_file(model: str) -> None:
    dialect = f"diffusers-dreambooth-lora-{model}"
    assert train(dialect, "--train_text_encoder", "--text_encoder_lr=1e-2") == 0
    encoders = {"text_encoder", "text_encoder_2"} if model == "sd3" else {"text_encoder"}
    tensors = load_file("out/pytorch_lora_weights.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"transformer", *encoders}
    pipeline = opened(folder_of_model(dialect))
    before = pipeline.encode_prompt("a", "a", "a", device="cpu") if model == "sd3" else pipeline.encode_prompt("a", "a")
    pipeline.load_lora_weights("out")
    after = pipeline.encode_prompt("a", "a", "a", device="cpu") if model == "sd3" else pipeline.encode_prompt("a", "a")
    assert not torch.equal(before[2 if model == "sd3" else 1], after[2 if model == "sd3" else 1]), "the pooled text"


@pytest.mark.slow
def test_adapter_file_has_the_compute_dtype_or_float32() -> None:
    for words, dtype in (
        (["--mixed_precision=bf16"], "BF16"),
        (["--mixed_precision=bf16", "--upcast_before_saving"], "F32"),
    ):
        out = f"--output_dir=out{len(words)}"
        assert train("diffusers-dreambooth-lora-qwen-image", *words, out) == 0
        with safe_open(f"out{len(words)}/pytorch_lora_weights.safetensors", "pt") as file:
            names = list(file.keys())
            assert {file.get_slice(name).get_dtype() for name in names} == {dtype}


FLUX = "diffusers-dreambooth-lora-flux"


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_check_and_bench_accept_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", "--as", FLUX, *OURS, "--processes=2", "--", *line(FLUX)]) == 0
    assert "2 on each of 2 processes: a batch of 4" in " ".join(capsys.readouterr().out.split())
    monkeypatch.setattr(bench, "flops_of_samples", lambda recipe, sizes: {})
    monkeypatch.setattr(bench, "plot_bench", lambda runs, **words: b"")
    assert main(["bench", "--as", FLUX, *OURS, "--as-written", "--steps=2", "--out=bench", "--", *line(FLUX)]) == 0
    [document] = Path("bench").rglob("*.json")
    assert [row["steps"] for row in json.loads(document.read_text())["rows"]] == [2]


@pytest.mark.slow
@pytest.mark.distributed
def test_command_trains_in_two_processes() -> None:
    """With the variables that `accelerate launch` sets, in forked processes."""
    pasted = [word for word in line(FLUX) if word not in ("accelerate", "launch")]
    output = run_two(["train", "--as", FLUX, *OURS, "--", *pasted], Path("said.txt"), ACCELERATE_MIXED_PRECISION="bf16")
    assert json.loads(Path("out/environment.json").read_text())["processes"] == 2
    assert load_file("out/pytorch_lora_weights.safetensors")
    assert "bf16, as the launcher sets" in output


@pytest.mark.slow
def test_class_images_and_previews_at_both_ends_are_generated(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--with_prior_preservation", "--class_data_dir=kind", "--class_prompt=a cat", "--num_class_images=2",
        "--train_batch_size=1", "--final_validation_prompt=a cat", "--num_validation_images=1", "--caption_dropout=0.1",
    )  # fmt: skip
    assert train("diffusers-dreambooth-lora-flux2-klein", *words) == 0
    assert sorted(path.name for path in Path("kind").iterdir()) == ["class-00000.png", "class-00001.png"]
    steps = [json.loads(text) for text in Path("out/metrics.jsonl").read_text().splitlines()]
    assert [step["samples"] for step in steps if "loss" in step] == [2, 2]
    generated = sorted(path.name for path in Path("out/samples").iterdir() if path.is_dir())
    assert generated == ["step-00000000", "step-00000002"]
