"""Runs that train learned tokens: killed and resumed, in two processes, with an adapter; their files in diffusers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.families import sdxl
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.files import learned_tokens
from support.model_export import second_version
from support.run_folders import assert_alike, logged, tensors_of

WORDS = {
    "model__train": "[tokens]", "model__tokens__words": {"<toy>": "red"}, "model__tokens__vectors": 2,
    "data__captions__prefix": "<toy> ", "run__steps": 4, "run__save__every": 2, "optim__lr": 1e-2,
    "optim__accumulation": 2, "data__batch_size": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def base(shared_world: Any) -> Path:
    """A model with weights in files."""
    folder = Path(shared_world.root / "base")
    assert shared_world.train("plain", optim__lr=1e-9, run__steps=1, run__export__folder=folder) == 0
    return folder


@pytest.fixture(scope="module")
def whole(shared_world: Any, base: Path) -> Path:
    settings = WORDS | {"model__path": base, "model__weights": "files"}
    assert shared_world.wait(shared_world.fork("words", **settings)) == 0, shared_world.out("words")
    return Path(shared_world.root / "words")


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(shared_world: Any, base: Path, whole: Path) -> None:
    world, settings = shared_world, WORDS | {"model__path": base, "model__weights": "files"}
    killed = settings | {"run__save__asynchronous": False}  # the checkpoint of step 2 is complete when step 3 begins
    assert world.wait(world.fork("cut", fault="step.backward@3:kill", **killed)) == 137
    assert world.wait(world.fork("cut", **settings)) == 0, world.out("cut")
    assert "resuming from step-00000002" in world.out("cut")
    assert world.end("cut").tensors == world.end("words").tensors


def test_only_learned_tokens_are_trained_and_saved(whole: Path) -> None:
    tensors = tensors_of(whole)
    assert {name for name in tensors if name.startswith("w/")} == {"w/tokens/text_encoder"}
    assert {tuple(t.shape) for name, t in tensors.items() if name.endswith("tokens/text_encoder")} == {(2, 32)}
    export = whole / "exports" / "step-00000004"
    assert {str(file.relative_to(export)) for file in export.rglob("*") if file.is_file()} == {
        "README.md", "learned_embeds.safetensors", "embeddings/toy.safetensors",
    }  # fmt: skip


def test_diffusers_encodes_a_learned_token_alike(base: Path, whole: Path) -> None:
    import diffusers

    export = whole / "exports" / "step-00000004"
    rows = load_file(export / "learned_embeds.safetensors")["<toy>"]
    family = Family.of(ModelSettings(path=base))
    family.add_learned_tokens({}, 1, {"<toy>": {"text_encoder": rows}})
    texts = ["a <toy> on a table", "no toy"]
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(base, safety_checker=None)
    table = pipe.text_encoder.get_input_embeddings().weight.clone()
    pipe.load_textual_inversion(str(export))
    theirs = pipe.encode_prompt(texts, "cpu", 1, False)[0].detach()
    with torch.no_grad():
        ours = family.encode_text(texts).states
    assert float((theirs - ours).abs().max()) < 1e-5
    assert torch.equal(pipe.text_encoder.get_input_embeddings().weight[: len(table)], table)
    assert not torch.equal(rows[0], rows[1]), "each row is trained"


def test_run_and_embedding_file_generate_the_same_image(
    shared_world: Any, base: Path, whole: Path, tmp_path: Path
) -> None:
    line = ["--prompt=a <toy>", "--seed=1", "--steps=2", "--size=32x32"]
    average = whole / "exports" / "step-00000004-ema"
    files = {"embeddings": average / "embeddings" / "toy.safetensors", "diffusers": average}
    assert main(["sample", str(whole), *line, "--weights=ema", f"--out={tmp_path / 'run'}"]) == 0
    for name, file in files.items():
        assert main(["sample", str(base), *line, f"--embedding=<toy>={file}", f"--out={tmp_path / name}"]) == 0
    pixels = {name: _only_image(tmp_path / name) for name in ("run", *files)}
    assert pixels["embeddings"] == pixels["diffusers"] == pixels["run"]
    assert main(["sample", str(base), "--prompt=a", f"--embedding=toy={tmp_path / 'none'}"]) == 2


def _only_image(folder: Path) -> bytes:
    from PIL import Image

    with Image.open(sorted(folder.glob("*.png"))[0]) as image:
        return image.convert("RGB").tobytes()


def test_learned_token_resumes_together_with_an_adapter(shared_world: Any, base: Path, whole: Path) -> None:
    """Exports files of the adapter and of the token, which starts with the rows of the file."""
    world = shared_world
    settings = WORDS | {
        "model__path": base, "model__weights": "files", "model__train": "[denoiser, tokens]", "run__steps": 1,
        "model__adapter__kind": "lora", "model__tokens__files": {"<toy>": str(whole / "exports" / "step-00000004")},
        "optim__lr": 1e-9, "optim__ema__rule": "none",
    }  # fmt: skip
    del settings["model__tokens__words"], settings["model__tokens__vectors"]
    assert world.wait(world.fork("further", **settings)) == 0, world.out("further")
    export = world.root / "further" / "exports" / "step-00000001"
    names = {file.name for file in export.rglob("*.safetensors")}
    assert names == {
        "pytorch_lora_weights.safetensors", "run.safetensors", "learned_embeds.safetensors", "toy.safetensors",
    }  # fmt: skip
    begun = load_file(whole / "exports" / "step-00000004" / "learned_embeds.safetensors")["<toy>"]
    ended = load_file(export / "learned_embeds.safetensors")["<toy>"]
    assert float((begun - ended).abs().max()) < 1e-7
    assert "tokens 64 trained" in world.out("further")


@pytest.mark.slow
def test_diffusers_encodes_a_learned_token_of_sd2_alike(shared_world: Any, base: Path, tmp_path: Path) -> None:
    """Its encoder is another network (GELU in the place of quick GELU); the files are those of SD1."""
    import diffusers

    folder, world = second_version(base, tmp_path / "sd2"), shared_world
    settings = WORDS | {"model__path": folder, "model__weights": "files"}
    assert world.train("second", **settings) == 0
    export = world.root / "second" / "exports" / "step-00000004"
    family = Family.of(ModelSettings(path=folder))
    family.add_learned_tokens(
        {}, 1, {"<toy>": learned_tokens.read(export / "embeddings" / "toy.safetensors", family.text_parts)}
    )
    pipe = diffusers.StableDiffusionPipeline.from_pretrained(folder, safety_checker=None)
    pipe.load_textual_inversion(str(export))
    theirs = pipe.encode_prompt(["a <toy> there"], "cpu", 1, False)[0].detach()
    with torch.no_grad():
        ours = family.encode_text(["a <toy> there"]).states
    assert float((theirs - ours).abs().max()) < 1e-5


@pytest.mark.slow
def test_sdxl_token_has_a_file_for_each_text_encoder(shared_world: Any, tmp_path: Path) -> None:
    import diffusers

    folder, world = tmp_path / "xl", shared_world
    plain = {"model__path": "tiny-sdxl", "model__family": "sdxl", "optim__lr": 1e-9, "run__steps": 1}
    assert world.train("xl-plain", **plain, run__export__folder=folder) == 0
    settings = WORDS | {"model__path": folder, "model__weights": "files", "model__family": "sdxl"}
    assert world.train("xl", **settings) == 0
    export = world.root / "xl" / "exports" / "step-00000004"
    pipe = diffusers.StableDiffusionXLPipeline.from_pretrained(folder)
    for file, encoder, tokenizer in (
        ("learned_embeds.safetensors", pipe.text_encoder, pipe.tokenizer),
        ("learned_embeds_2.safetensors", pipe.text_encoder_2, pipe.tokenizer_2),
    ):
        rows = load_file(export / file)["<toy>"]
        pipe.load_textual_inversion(rows, token="<toy>", text_encoder=encoder, tokenizer=tokenizer)
    family = sdxl.Family.of(ModelSettings(path=folder, family="sdxl"))
    read = learned_tokens.read(export / "embeddings" / "toy.safetensors", family.text_parts)
    family.add_learned_tokens({}, 1, {"<toy>": read})
    theirs = pipe.encode_prompt("a <toy> there", device="cpu", do_classifier_free_guidance=False)
    with torch.no_grad():
        ours = family.encode_text(["a <toy> there"])
    assert ours.pooled is not None
    assert float((theirs[0].detach() - ours.states).abs().max()) < 1e-5
    assert float((theirs[2].detach() - ours.pooled).abs().max()) < 1e-5


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("runtime", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_two_processes_end_as_one_does(shared_world: Any, base: Path, whole: Path, runtime: str) -> None:
    world, settings = shared_world, WORDS | {"model__path": base, "model__weights": "files"}
    for child in world.fork_group(runtime, 2, run__runtime=runtime, **settings):
        assert world.wait(child) == 0, world.out(runtime)
    assert logged(world.root / runtime, "loss") == pytest.approx(logged(whole, "loss"), rel=1e-4)
    assert_alike(tensors_of(world.root / runtime), tensors_of(whole))
