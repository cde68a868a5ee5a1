"""Mistakes of users of flow-matching models: each is refused before the first step with a message and a code, and no
file is left."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mezzotint.cli import main
from mezzotint.errors import OutOfMemory
from mezzotint.runtimes.shared.offload import Offload
from mezzotint.weights.folder.model_folder import shipped_folder
from support.sd_folder import edit

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow"
TINY = {
    "run__steps": 1, "data__buckets__step": 16, "data__buckets__shape": "square", "sample__size": [48, 48],
    "optim__ema__rule": "none",
}  # fmt: skip
T5 = {"sd3": {"model__sd3__t5_tokens": 16}, "flux": {"model__flux__t5_tokens": 16}}


def copied(name: str, place: Path) -> Path:
    """A tiny model with its weights."""
    return Path(shutil.copytree(RECORDS / name.replace("-", "_") / "model", place))


def settings_of(name: str, path: Path, **more: Any) -> dict[str, Any]:
    return TINY | T5.get(name, {}) | {"model__family": name, "model__path": path, "model__weights": "files"} | more


def sentence(world: Any, capsys: Any, status: int = 2, verb: str = "train", **settings: Any) -> str:
    """The message of a refused run, on one line."""
    name = f"refused-{len(list(world.root.glob('*.yaml')))}"
    assert world.train(name, verb, **settings) == status
    assert not list((world.root / name / "checkpoints").glob("*"))
    message = capsys.readouterr()
    assert "Traceback" not in message.err
    return re.sub(r"\s+", " ", message.err if verb == "train" else message.out + message.err)


def turbo(folder: Path) -> None:
    edit(folder / "scheduler" / "scheduler_config.json", shift=3.0)


def distilled(folder: Path) -> None:
    edit(folder / "model_index.json", is_distilled=True)


def schnell(folder: Path) -> None:
    edit(folder / "transformer" / "config.json", guidance_embeds=False)


@pytest.mark.parametrize(
    ("name", "make", "output"),
    [
        ("z-image", turbo, "Z-Image-Turbo is a distilled model (its scheduler has shift 3, the base model's 6); "
         "training it destroys its 8-step sampling. Train Z-Image, put an "
         "adapter that undoes the distillation under the run (model.under), or set model.z_image.distilled=true"),
        ("flux2", distilled, "this FLUX.2 Klein is a distilled model (is_distilled in model_index.json); training it "
         "destroys its 4-step sampling. Train the base model, put an "
         "adapter that undoes the distillation under the run (model.under), or set model.flux2.distilled=true"),
        ("krea2", distilled, "Krea 2 Turbo is a distilled model (is_distilled in model_index.json); training it "
         "destroys its 8-step sampling. Train Krea 2 Raw, whose adapters also work with Turbo, put an "
         "adapter that undoes the distillation under the run (model.under), or set "
         "model.krea2.distilled=true"),
        ("flux", schnell, "FLUX.1-schnell is a distilled model (guidance_embeds is false in its configuration); "
         "training it destroys its 4-step sampling. Train FLUX.1-dev, whose adapters also work with schnell, put an "
         "adapter that undoes the distillation under the run (model.under), or set "
         "model.flux.distilled=true"),
    ],
    ids=["z-image", "flux2", "krea2", "flux"],
)  # fmt: skip
def test_distilled_model_is_refused_unless_requested(
    name: str, make: Callable[[Path], None], output: str, shared_world: Any, capsys: Any, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(shipped_folder(f"tiny-{name}"), tmp_path / "model"))
    make(folder)
    caches = {"data__cache__text": True, "data__cache__path": tmp_path / "cache"}
    message = sentence(shared_world, capsys, **settings_of(name, folder, model__weights="random", **caches))
    assert message.strip() == f"error[E1221]: {folder}: {output}"
    assert not (tmp_path / "cache" / "text").exists(), "nothing is encoded for a run that is refused"


def test_fp16_is_refused_where_the_family_overflows(shared_world: Any, capsys: Any) -> None:
    message = sentence(
        shared_world, capsys, **settings_of("z-image", shipped_folder("tiny-z-image"), run__precision="fp16")
    )
    assert "E1003 run.precision=fp16: Z-Image's activations overflow in fp16" in message
    assert "write run.precision=bf16" in message


def test_indivisible_size_is_refused(shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    own = settings_of("flux", shipped_folder("tiny-flux"), model__weights="random")
    message = sentence(shared_world, capsys, **own | {"data__resolution": 40, "data__buckets__step": 8})
    assert "error[E1464]: batches of 40×40 cannot be trained: this model needs sides that are multiples" in message
    assert "write data.buckets.step=16 or a multiple of it" in message
    words = ["--prompt=a", "model.weights=random", f"--out={tmp_path / 'out'}"]
    assert main(["sample", "tiny-flux", "--size=40x48", *words]) == 2
    message = capsys.readouterr().err
    assert (
        "error[E1007]: an image of 40x48 cannot be generated: its sides must be multiples of 16; 32x48 is near"
        in message
    )


def test_guidance_scale_is_refused_for_schnell(shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shipped_folder("tiny-flux"), tmp_path / "model"))
    schnell(folder)
    own = {"model__weights": "random", "model__flux__distilled": True, "model__flux__guidance": 3.5}
    message = sentence(shared_world, capsys, **settings_of("flux", folder, **own))
    output = "FLUX.1-schnell takes no guidance, got model.flux.guidance=3.5; set model.flux.guidance=null"
    assert message.strip() == f"error[E1220]: {folder}: {output}"
    words = ["--prompt=a", "--size=48x48", "--guidance=3.5", "model.weights=random", f"--out={tmp_path / 'out'}"]
    assert main(["sample", str(folder), *words]) == 2
    output = (
        "FLUX.1-schnell takes no guidance, got sample.guidance=3.5; set sample.guidance=1 and sample.steps=4, or remove"
    )
    assert f"error[E1220]: {output} both" in capsys.readouterr().err
    previews = {"model__weights": "random", "model__flux__distilled": True, "run__preview__every": 1}
    for verb in ("check", "train"):
        message = sentence(
            shared_world, capsys, verb=verb, **settings_of("flux", folder, **previews, sample__guidance=3.5)
        )
        assert f"error[E1220]: {output} both" in message


@pytest.mark.parametrize("verb", ["check", pytest.param("train", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("unmeasured")
def test_missing_t5_is_refused_for_training(verb: str, shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    """SD3 trains without it and reports that; FLUX.1 does not."""
    folder = copied("sd3", tmp_path / "sd3")
    for part in ("text_encoder_3", "tokenizer_3"):
        shutil.rmtree(folder / part)
    index = json.loads((folder / "model_index.json").read_text())
    edit(folder / "model_index.json", **{key: [None, None] for key in index if key.endswith("_3")})
    note = "text_encoder_3: this folder has no T5; zeros replace its output, as in diffusers' pipeline"
    assert shared_world.train(f"without-t5-{verb}", verb, **settings_of("sd3", folder)) == 0
    message = capsys.readouterr()
    assert note in re.sub(r"\s+", " ", message.out + message.err)
    flux = copied("flux", tmp_path / "flux")
    shutil.rmtree(flux / "text_encoder_2")
    message = sentence(shared_world, capsys, **settings_of("flux", flux))
    assert message.strip() == f"error[E1409]: {flux}: lacks text_encoder_2/; download the complete model"


def test_folder_of_another_kind_is_refused(shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    for name, pipeline, output in (
        ("flux", "AuraFlowPipeline", "is a folder of AuraFlowPipeline with a "),
        ("wan", "WanVACEPipeline", "is a folder of WanVACEPipeline with a "),
    ):
        folder = Path(shutil.copytree(shipped_folder(f"tiny-{name}"), tmp_path / name))
        edit(folder / "model_index.json", _class_name=pipeline)
        message = sentence(shared_world, capsys, **settings_of(name, folder, model__weights="random"))
        assert "error[E1222]" in message
        assert output in message
    message = sentence(shared_world, capsys, **settings_of("wan", RECORDS / "ltx" / "model"))
    assert "error[E1222]" in message
    assert "is a folder of LTXPipeline with a LTXVideoTransformer3DModel; family wan trains Wan 2.1, text to" in message
    assert message.strip().endswith("write model.family=ltx")


def test_index_with_a_missing_shard_is_refused(shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    folder = copied("flux", tmp_path / "model")
    weights = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    shards = [f"diffusion_pytorch_model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    weights.rename(weights.with_name(shards[0]))
    index = weights.with_name("diffusion_pytorch_model.safetensors.index.json")
    index.write_text(json.dumps({"weight_map": dict(zip("ab", shards, strict=True))}))
    message = sentence(shared_world, capsys, **settings_of("flux", folder))
    assert message.strip() == (
        f"error[E1404]: {index}: names {shards[1]}, which does not exist; download the missing shard"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("unmeasured")
def test_truncated_caption_is_reported(shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    images = Path(shutil.copytree(shared_world.images, tmp_path / "images"))
    text = sorted(images.glob("*.txt"))[0]
    text.write_text("red " * 600)
    own = settings_of("sd3", RECORDS / "sd3" / "model", data__path=images)
    message = sentence(shared_world, capsys, 0, "check", **own)
    assert f"is longer than the text encoder reads, and the end is lost: {text.stem}." in message


def test_streaming_of_trained_blocks_is_refused_in_two_processes(shared_world: Any, capsys: Any) -> None:
    own = settings_of("flux", shipped_folder("tiny-flux"), model__weights="random", run__offload__blocks=1)
    words = ["run.micro_batch=1", "--processes=2"]
    assert main(["check", *shared_world.words("offloaded", **own), *words]) == 2
    message = re.sub(r"\s+", " ", capsys.readouterr().err)
    assert (
        "error[E1752]: run.offload.blocks without an adapter keeps gradients and the update in host memory of "
        "one process, and 2 processes were started; start one process, train an adapter, or leave run.offload.blocks "
        "out and write run.runtime=fsdp" in message
    )


@pytest.mark.slow
def test_streaming_that_fits_all_blocks_runs_in_two_processes(shared_world: Any, capsys: Any) -> None:
    own = settings_of("flux", shipped_folder("tiny-flux"), model__weights="random", run__offload__blocks="auto")
    assert main(["check", *shared_world.words("roomy", **own), "--processes=2"]) == 0
    assert "all blocks fit on the device" in re.sub(r"\s+", " ", capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.distributed
def test_each_process_reports_that_its_blocks_cannot_be_trained(shared_world: Any) -> None:
    own = settings_of("flux", shipped_folder("tiny-flux"), model__weights="random", run__offload__blocks=1)
    for child in shared_world.fork_group("offloaded-2", 2, **own):
        assert shared_world.wait(child) == 2
    assert "E1752" in shared_world.out("offloaded-2")


def test_memory_that_cannot_be_page_locked_is_reported(
    shared_world: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU whose driver refuses."""
    plain, asked = Offload.__init__, []

    def with_stream(self: Offload, *words: Any) -> None:
        plain(self, *words)
        self._stream = SimpleNamespace()  # type: ignore[assignment]

    def refused(address: int, size: int, flags: int) -> int:
        asked.append(size)
        return 712

    monkeypatch.setattr(Offload, "__init__", with_stream)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: SimpleNamespace(cudaHostRegister=refused))
    own = settings_of("flux", shipped_folder("tiny-flux"), model__weights="random", run__offload__blocks=1)
    message = sentence(shared_world, capsys, OutOfMemory.exit_status, **own)
    assert asked
    assert asked[0] > 1000
    assert message.strip() == (
        f"error[E1753]: run.offload.blocks needs {asked[0]:,} bytes of page-locked host memory, which the system "
        "refused; free memory on the host, raise the limit of locked memory (`ulimit -l`), or remove "
        "run.offload.blocks"
    )
