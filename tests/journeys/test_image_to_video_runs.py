"""Runs of Wan's image-to-video models: with and without caches, with little memory, by adapter, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from diffusers import WanImageToVideoPipeline
from PIL import Image
from safetensors.torch import load_file

from mezzotint.cli import main
from mezzotint.families.wan import Family, Files
from mezzotint.sampling import sample as sampling
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.tasks.check.check import check
from mezzotint.tasks.prompts.first_frames import pixels_of
from mezzotint.tasks.reading.arguments import parse
from support.flow_folders import tiny_i2v
from support.run_folders import assert_alike, logged, tensors_of

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow" / "wan" / "model"
KINDS = ("2.1", pytest.param("A14B", marks=pytest.mark.slow))
CACHED = {"data__cache__latents": True, "data__cache__text": True}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {kind: tiny_i2v(RECORDS, root / kind, second=kind == "A14B") for kind in ("2.1", "A14B")}


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    """Four clips of ten frames with captions, and different first frames."""
    folder = tmp_path_factory.mktemp("films")
    for number, size in enumerate(((48, 32), (32, 48), (64, 32), (32, 36))):
        write_clip(folder / f"{number}.mp4", 10, size=size)
        (folder / f"{number}.txt").write_text(f"a ball, number {number}")
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "first.png"
    Image.linear_gradient("L").convert("RGB").resize((32, 32)).save(path)
    return path


@pytest.fixture
def settings(models: dict[str, Path], clips: Path) -> Any:
    """`settings("2.1", run__steps=4)`: a run over the clips."""

    def of(kind: str, **changes: Any) -> dict[str, Any]:
        model = {"model__family": "wan", "model__path": models[kind], "model__weights": "files"}
        data = {
            "data__path": clips, "data__format": "videofolder", "data__clips__frames": 5, "data__resolution": 32,
            "data__buckets__step": 32, "data__buckets__shape": "square", "data__batch_size": 2, "data__flip": 0,
            "data__crop": "center", "data__clips__start": "first",
        }  # fmt: skip
        return model | data | {"run__steps": 2, "optim__ema__rule": "none", "run__preview__every": None} | changes

    return of


def sentence(world: Any, capsys: Any, verb: str = "train", **own: Any) -> str:
    """The message of a refused run, on one line."""
    capsys.readouterr()
    assert world.train(f"refused-{len(list(world.root.glob('*.yaml')))}", verb, **own) == 2
    message = capsys.readouterr()
    return re.sub(r"\s+", " ", message.err if verb == "train" else message.out + message.err)


@pytest.mark.parametrize("kind", KINDS)
def test_cached_first_frames_train_as_those_of_the_pixels(shared_world: Any, settings: Any, kind: str) -> None:
    """Also the losses of held-out clips, and with blocks on the host and micro-batches."""
    world = shared_world
    held_out = {"data__holdout__fraction": 0.25, "run__validation__every": "1 steps"}
    assert world.train(f"{kind}-plain", **settings(kind, **held_out)) == 0
    for content in ("moments", "sample"):
        own = settings(kind, **held_out, **CACHED, data__cache__content=content)
        assert world.train(f"{kind}-{content}", **own) == 0
    less = {"run__gradient_checkpointing__enabled": True, "run__offload__blocks": 1, "run__micro_batch": 1}
    assert world.train(f"{kind}-narrow", **settings(kind, **held_out, **CACHED, **less)) == 0
    plain, moments, sample, narrow = (
        logged(world.root / f"{kind}-{run}") for run in ("plain", "moments", "sample", "narrow")
    )
    assert moments == pytest.approx(plain, rel=1e-4)
    assert narrow == pytest.approx(plain, rel=1e-4)
    assert sample != pytest.approx(plain, rel=1e-4), "another draw of the posterior"
    assert sample == pytest.approx(plain, rel=0.2)


@pytest.mark.parametrize("kind", ["2.1", "A14B"])
def test_check_counts_cached_first_frames(shared_world: Any, settings: Any, kind: str) -> None:
    own = settings(kind, **CACHED, data__cache__dtype="bf16", data__cache__path=shared_world.root / f"cache-{kind}")
    [need] = [one for one in check(parse(shared_world.words(f"need-{kind}", **own), "check")).caches
              if one.kind == "latents"]  # fmt: skip
    vision = 5 * 8 if kind == "2.1" else 0
    assert (need.entries, need.bytes) == (4, 4 * 2 * (3 * 16 * 2 * 4 * 4 + vision))
    assert main(["cache", *shared_world.words(f"need-{kind}", **own)]) == 0
    stored = sum(path.stat().st_size for path in (shared_world.root / f"cache-{kind}" / "latents").rglob("*"))
    assert need.bytes <= stored <= need.bytes + 3 * 4096, "rows, and headers of the files"


@pytest.mark.parametrize("kind", KINDS)
def test_adapter_on_rounded_weights_continues_an_image_as_in_diffusers(
    shared_world: Any, settings: Any, models: dict[str, Path], image: Path, kind: str, tmp_path: Path, capsys: Any
) -> None:
    pytest.importorskip("peft")
    world = shared_world
    own = {"model__adapter__kind": "lora", "model__adapter__rank": 2, "run__frozen_dtype": "int8", "optim__lr": 0.1}
    assert world.train(f"{kind}-lora", **settings(kind, **CACHED, **own)) == 0
    [adapter] = (world.root / f"{kind}-lora" / "exports").rglob("pytorch_lora_weights*.safetensors")
    card = (adapter.parent / "README.md").read_text("utf-8")
    assert "pipeline_tag: image-to-video\n" in card
    assert re.search(r"export_to_video\(pipeline\(.*, image=load_image\(\"image-1.png\"\)\)", card)
    assert main(["check-adapter", str(adapter), f"--base={models[kind]}"]) == 0
    assert any("add_k_proj" in name for name in load_file(adapter)) is (kind == "2.1")
    assert main(["merge", str(models[kind]), str(adapter), str(tmp_path / "merged")]) == 0
    pipeline: Any = WanImageToVideoPipeline.from_pretrained(str(models[kind]), local_files_only=True)
    noise = torch.randn(1, 16, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    options = {"height": 32, "width": 32, "num_frames": 5, "num_inference_steps": 1, "guidance_scale": 3.0}

    def theirs() -> torch.Tensor:
        latents: torch.Tensor = pipeline(
            Image.open(image), ["a ball"], negative_prompt=[""], latents=noise, output_type="latent", **options
        ).frames
        return latents

    plain = theirs()
    pipeline.load_lora_weights(str(adapter.parent), weight_name=adapter.name)
    family = Family.load(Files.of(ModelSettings(family="wan", path=tmp_path / "merged")))
    pixels = pixels_of(image, Size(32, 32), DataSettings(), "sample.clip.first_frame")
    how = Sampling(family.schedule, family.prediction, "cpu", SampleSettings(steps=1, guidance=(3.0,), solver="unipc"))
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        request = Request("a ball", Size(32, 32, 5), images=family.encode_first_frames(pixels, 5))
        patch.setattr(sampling, "initial_noise", lambda *_: noise)
        ours = sampling.sample_latents(family, [request], how)
    assert (ours - theirs()).abs().max() <= 1e-4 * ours.abs().max()
    assert (ours - plain).abs().max() > 1e-3 * ours.abs().max()


def test_images_and_short_clips_are_refused(shared_world: Any, settings: Any, capsys: Any) -> None:
    own = settings("2.1", data__clips__frames=1)
    message = sentence(shared_world, capsys, **own)
    assert "error[E1464]: clips of 1 frame cannot be trained: this model continues the first frame of a clip" in message
    assert "write data.clips.frames=5 or more" in message
    images = {"data__path": shared_world.images, "data__format": "image-folder", "data__clips__frames": None}
    own = {key: value for key, value in settings("2.1", **images).items() if value is not None}
    own.pop("data__clips__start")
    message = sentence(shared_world, capsys, **own)
    assert "error[E1464]: images cannot be trained" in message
    assert "write data.format=videofolder and data.clips.frames=5 or more" in message
    message = sentence(shared_world, capsys, **settings("2.1", data__clips__frames=41))
    assert "error[E1202]" in message
    assert "too short: 10 frames, but 41 are needed" in message


def test_first_frames_that_are_missing_or_impossible_are_refused(
    shared_world: Any, settings: Any, models: dict[str, Path], image: Path, capsys: Any, tmp_path: Path
) -> None:
    for verb in ("check", "train"):
        message = sentence(shared_world, capsys, verb, **settings("2.1", run__preview__every=1))
        assert "error[E1296]: this model continues an image, and the recipe has none; write sample.clip." in message
    conditions = {"data__conditions": {"source": str(tmp_path)}}
    (tmp_path / "0.png").write_bytes(image.read_bytes())
    message = sentence(shared_world, capsys, **settings("2.1", **conditions))
    assert "data.conditions" in message
    words = ["--prompt=a", "--steps=1", "--size=32x32", "run.device=cpu", f"--out={tmp_path / 'out'}"]
    for more, code, part in (
        (["sample.clip.frames=5"], "E1296", "this model continues an image"),
        ([f"--condition=first_frame={image}"], "E1480", "an image has no following frames; set sample.clip.frames"),
        (["sample.clip.frames=5", f"--condition=source={image}"], "E1296", "this model takes first_frame, got source"),
        (["sample.clip.frames=5", f"sample.clip.first_frame={image}", f"--condition=first_frame={image}"], "E1296",
         "both name first frames; leave one out"),
    ):  # fmt: skip
        capsys.readouterr()
        assert main(["sample", str(models["2.1"]), "model.family=wan", *words, *more]) == 2
        message = re.sub(r"\s+", " ", capsys.readouterr().err)
        assert (code in message, part in message) == (True, True), message


def test_each_prompt_continues_its_image(models: dict[str, Path], image: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.png"
    Image.new("RGB", (40, 20), (250, 0, 0)).save(other)
    words = ["--steps=1", "--size=32x32", "run.device=cpu", "sample.clip.frames=5", "model.family=wan", "--seed=1"]
    words += ["--prompt=a ball", "--prompt=a cube"]
    sampled = []
    for number, images in enumerate((f"[{image}, {other}]", f"[{image}, {image}]", str(image))):
        own = [f"sample.conditions={{first_frame: {images}}}", f"--out={tmp_path / str(number)}"]
        if number == 2:
            own[0] = f"sample.clip.first_frame={image}"
        assert main(["sample", str(models["2.1"]), *words, *own]) == 0
        sampled.append([decode(path) for path in sorted((tmp_path / str(number)).rglob("*.mp4"))])
    assert [len(clips) for clips in sampled] == [2, 2, 2]
    assert [np.array_equal(*pair) for pair in zip(sampled[0], sampled[1], strict=True)] == [True, False]
    assert all(np.array_equal(*pair) for pair in zip(sampled[1], sampled[2], strict=True))


def decode(path: Path) -> np.ndarray[Any, Any]:
    """(F, H, W, 3) uint8."""
    with av.open(str(path)) as file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)])


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("runtime", ["ddp", "fsdp"])
def test_two_processes_train_as_one_does(shared_world: Any, settings: Any, runtime: str) -> None:
    pytest.importorskip("peft")
    own = settings("2.1", **CACHED, model__adapter__kind="lora", run__steps=3) | {"optim__lr": 1e-3}
    own |= {"objective__preserve__kind": "blank"}
    world = shared_world
    assert world.wait(world.fork(f"one-{runtime}", **own)) == 0, world.out(f"one-{runtime}")
    for child in world.fork_group(f"two-{runtime}", 2, run__runtime=runtime, **own):
        assert world.wait(child) == 0, world.out(f"two-{runtime}")
    for curve in ("loss", "loss/preserve"):
        folders = [world.root / f"{count}-{runtime}" for count in ("one", "two")]
        assert logged(folders[0], curve) == pytest.approx(logged(folders[1], curve), rel=1e-3, abs=1e-6)
    assert_alike(*(tensors_of(folder) for folder in folders))
