"""Rows of the section `run` that concern files and output: two complete runs, with other settings each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from mezzotint.errors import RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.settings.base import Every
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.train import resume
from mezzotint.training.callbacks.saving import Exporter, Saver
from mezzotint.training.callbacks.validation import Validation
from mezzotint.training.checkpoints import state
from mezzotint.training.progress import Progress
from support.effect_fixtures import COMMON, names

RICH = COMMON | {
    "run__steps": 6,
    "run__save__every": "2 steps",
    "run__save__keep": 2,
    "run__export__every": 4,
    "run__export__dtype": "fp16",
    "run__log_every": 4,
    "run__log_samples": False,
    "run__tensorboard": True,
    "run__validation__every": 3,
    "run__validation__timesteps": 2,
    "run__preview__every": 3,
    "run__preview__weights": "ema",
}
POOR = COMMON | {
    "run__steps": 3,
    "run__save__every": "null",
    "run__save__keep": 1,
    "run__export__every": "null",
    "run__export__dtype": "fp32",
    "run__log_every": 1,
    "run__log_samples": True,
    "run__tensorboard": False,
    "run__validation__every": "null",
    "run__preview__every": "null",
}


@pytest.fixture(scope="module")
def rich(shared_world: Any) -> Path:
    assert shared_world.train("rich", run__export__folder=shared_world.root / "rich", **RICH) == 0
    return Path(shared_world.root / "rich")


@pytest.fixture(scope="module")
def poor(shared_world: Any) -> Path:
    assert shared_world.train("poor", **POOR) == 0
    return Path(shared_world.root / "poor")


def lines(run: Path, key: str) -> dict[int, dict[str, Any]]:
    """The lines of metrics.jsonl that hold a key, by step."""
    read = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {line["step"]: line for line in read if key in line}


# breaks if the interval or its unit differs, or null writes during the run
@pytest.mark.effect("run.save.every")
def test_save_every_sets_the_checkpoint_interval(rich: Path, poor: Path) -> None:
    assert names(poor / "checkpoints") == ["step-00000003"]
    assert names(rich / "checkpoints")[-1] == "step-00000006"
    assert names(rich / "checkpoints")[0] == "step-00000004", "one between the start and the end"
    middle = Progress(step=5, last_step=20, epoch=1, epoch_ends=False)
    end = Progress(step=6, last_step=20, epoch=1, epoch_ends=True)
    assert [Saver([Every.parse("2 epochs")]).due(p) for p in (middle, end)] == [False, True]
    assert [Saver([Every.parse("3 epochs")]).due(p) for p in (middle, end)] == [False, False]
    assert [Saver([Every.parse("5 steps")]).due(p) for p in (middle, end)] == [True, False]


# breaks if all checkpoints are kept, or another number of them
@pytest.mark.effect("run.save.keep")
@pytest.mark.parametrize(
    ("keep", "kept"),
    [(2, ["2", "3"]), ("null", ["1", "2", "3"])],
)
def test_save_keep_is_the_number_of_checkpoints_kept(prepare: Any, keep: int | str, kept: list[str]) -> None:
    ready = prepare(run__steps=3, run__save__every=1, run__save__keep=keep, **COMMON)
    ready.trainer.run()
    assert names(ready.folder.checkpoints) == [f"step-0000000{step}" for step in kept]


# breaks if the lowest held-out loss is not saved, its checkpoint is deleted, or a kill changes the choice
@pytest.mark.effect("run.save.best")
def test_save_best_keeps_lowest_loss_checkpoint_when_killed(shared_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_step, measure, curve, steps = Validation.on_step, Validation.measure, [0.9, 0.5, 0.7, 0.8], [0]

    def noted(callback: Validation, report: Any, progress: Progress) -> Any:
        steps.append(progress.step)
        return on_step(callback, report, progress)

    monkeypatch.setattr(Validation, "on_step", noted)
    monkeypatch.setattr(Validation, "measure", lambda self: dict.fromkeys(measure(self), curve[steps[-1] - 1]))
    settings = COMMON | {
        "run__steps": 4, "run__save__every": "3 steps", "run__save__keep": 1, "run__save__best": True,
        "run__export__parts": "trained", "optim__ema__rule": "none",
        "run__save__asynchronous": False, "run__validation__every": 1, "run__validation__timesteps": 1,
    }  # fmt: skip
    assert shared_world.train("best", **settings) == 0
    whole = shared_world.root / "best" / "checkpoints"
    assert names(whole) == ["best", "step-00000002", "step-00000004"]
    assert (whole / "best").readlink() == Path("step-00000002")
    name = "killed"
    for fault in ("checkpoint.renamed@2", "checkpoint.best@1"):
        child = shared_world.fork(name, fault=f"{fault}:kill", **settings)
        assert shared_world.wait(child) == 137, (fault, shared_world.out(name))
    assert shared_world.wait(shared_world.fork(name, **settings)) == 0, shared_world.out(name)
    killed = shared_world.root / name / "checkpoints"
    assert names(killed) == names(whole)
    assert (killed / "best").readlink() == Path("step-00000002")
    assert shared_world.end(name) == shared_world.end("best")
    assert state.read(killed / "best").tensors.keys() == state.read(whole / "best").tensors.keys()
    start = resume.choose("best", RunFolder(killed.parent), "mezzotint train")
    assert start.checkpoint is not None
    assert start.checkpoint.resolve() == killed / "step-00000002"


@pytest.mark.parametrize("words", [[], ["data.holdout.fraction=0.1", "run.validation.every=null"]])
def test_save_best_needs_a_held_out_loss(words: list[str]) -> None:
    with pytest.raises(RecipeError, match=r"run\.save\.best needs a held-out loss"):
        read_text("schema: 1", overrides=["run.save.best=true", *words])


# breaks if nothing is exported during the run, or at the end
@pytest.mark.effect("run.export.every")
def test_export_every_sets_the_export_interval(rich: Path, poor: Path) -> None:
    assert names(rich / "exports") == [
        "step-00000004", "step-00000004-ema", "step-00000006", "step-00000006-ema",
    ]  # fmt: skip
    assert names(poor / "exports") == ["step-00000003", "step-00000003-ema"]


# breaks if weights are exported in the dtype of training
@pytest.mark.effect("run.export.dtype")
def test_export_dtype_is_the_dtype_of_written_weights(rich: Path, poor: Path) -> None:
    for run, expected in ((rich, "F16"), (poor, "F32")):
        for file in run.glob("exports/*/unet/*.safetensors"):
            with safe_open(file, "pt") as tensors:
                assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {expected}  # noqa: SIM118


# breaks if the finished model is only in the exports, or has the trained weights although there is an average
@pytest.mark.effect("run.export.folder")
def test_export_folder_receives_the_finished_model(rich: Path, poor: Path) -> None:
    published = rich / "unet" / "diffusion_pytorch_model.safetensors"
    average, raw = (
        rich / "exports" / name / "unet" / published.name for name in ("step-00000006-ema", "step-00000006")
    )
    assert published.read_bytes() == average.read_bytes() != raw.read_bytes()
    assert (rich / "model_index.json").read_bytes() == (average.parents[1] / "model_index.json").read_bytes()
    assert {"checkpoints", "recipe.yaml", "unet", "vae", "text_encoder", "tokenizer"} <= set(names(rich))
    assert "unet" not in names(poor)


# breaks if no file is written next to the folder, always one, or with other weights than the folder's
@pytest.mark.effect("run.export.single_file")
def test_export_single_file_also_writes_one_file(prepare: Any) -> None:
    for expected in (False, True):
        ready = prepare(run__export__single_file=expected, run__export__dtype="fp16", optim__ema__rule="none", **COMMON)
        ready.trainer.host.export(ready.trainer)
        folder, *file = sorted(ready.folder.exports.iterdir())
        assert [path.name for path in file] == ([f"{folder.name}.safetensors"] if expected else [])
    unet = load_file(folder / "unet" / "diffusion_pytorch_model.safetensors")
    single = load_file(file[0])
    assert torch.equal(single["model.diffusion_model.input_blocks.0.0.weight"], unet["conv_in.weight"])
    assert unet["conv_in.weight"].dtype == torch.float16


# breaks if a whole model is written, or untrained parts, or under names that merge does not recognise
@pytest.mark.effect("run.export.parts")
def test_export_parts_writes_only_trained_parts(prepare: Any, tmp_path: Path) -> None:
    settings = {"run__export__parts": "trained", "run__export__name": "unet_{micro_step}", "optim__ema__rule": "none"}
    ready = prepare(**settings, run__export__dtype="fp16", **COMMON)
    ready.trainer.host.export(ready.trainer)
    assert names(ready.folder.exports) == ["unet_0.safetensors"]
    held = load_file(ready.folder.exports / "unet_0.safetensors")
    unet = ready.family.parts()["denoiser"].state_dict()
    assert len(held) == len(unet)
    assert all(name.startswith("model.diffusion_model.") for name in held)
    first = held["model.diffusion_model.input_blocks.0.0.weight"]
    assert torch.equal(first, unet["conv_in.weight"].half())
    elsewhere = prepare(**settings, run__export__single_file_folder=str(tmp_path / "weights"), **COMMON)
    elsewhere.trainer.host.export(elsewhere.trainer)
    assert names(tmp_path / "weights") == ["unet_0.safetensors"]
    with pytest.raises(RecipeError, match=r"run\.export\.parts=trained writes none"):
        prepare(**settings, run__export__folder="x", **COMMON)
    for parts, called in (("all", ["mine_0", "mine_0.safetensors"]), ("trained", ["unet_0.safetensors"])):
        settings |= {"run__export__parts": parts, "run__export__name": "{what}_{micro_step}", "run__name": "mine"}
        ready = prepare(**settings, run__export__single_file=True, **COMMON)
        ready.trainer.host.export(ready.trainer)
        assert names(ready.folder.exports) == called, "one word writes only the trained token, under its name"


# breaks if nothing is written next to the model, in the other layout, or under the model's name
@pytest.mark.effect("run.export.trained_file")
def test_export_trained_file_is_written_next_to_the_model(prepare: Any, sdxl_folder: Path) -> None:
    settings = COMMON | {"model__family": "sdxl", "model__path": sdxl_folder, "run__name": "mine"}
    for form, name, called in (
        ("null", "{what}_{micro_step}{ema}", ["mine_0", "mine_0_ema"]),
        ("safetensors", "m{micro_step}", ["m0", "m0-ema", "unet-m0-ema.safetensors", "unet-m0.safetensors"]),
    ):
        ready = prepare(**settings, run__export__trained_file=form, run__export__name=name)
        ready.trainer.host.export(ready.trainer)
        assert names(ready.folder.exports) == called
    alone = {"run__export__parts": "trained", "run__export__trained_file": "safetensors", "run__export__name": "x"}
    ready = prepare(**settings, **alone)
    ready.trainer.host.export(ready.trainer)
    assert names(ready.folder.exports) == ["x-ema.safetensors", "x.safetensors"], "once is enough"


# breaks if every step is logged, or the first and the last are not
@pytest.mark.effect("run.log_every")
def test_log_every_counts_steps_between_lines(rich: Path, poor: Path) -> None:
    assert sorted(lines(rich, "loss")) == [1, 4, 6]
    assert sorted(lines(poor, "loss")) == [1, 2, 3]


# breaks if samples are always logged, or never
@pytest.mark.effect("run.log_samples")
def test_log_samples_writes_what_made_each_step(rich: Path, poor: Path) -> None:
    assert not list(rich.glob("logs/samples.*"))
    logged = [json.loads(line) for line in (poor / "logs" / "samples.rank0.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [1, 2, 3]
    steps = lines(poor, "loss")
    for line in logged:
        assert len(line["keys"]) == len(line["timesteps"]) == len(line["losses"]) == steps[line["step"]]["samples"]


# breaks if events are always written, or never
@pytest.mark.effect("run.tensorboard")
def test_tensorboard_writes_events(rich: Path, poor: Path) -> None:
    [events] = rich.glob("logs/events.out.tfevents.*")
    assert b"loss/step" in events.read_bytes()
    assert not list(poor.glob("logs/events*"))


# breaks if the held-out loss is measured at other steps, or by default
@pytest.mark.effect("run.validation.every")
def test_validation_every_sets_the_validation_interval(rich: Path, poor: Path) -> None:
    assert sorted(lines(rich, "val/loss")) == [0, 3, 6]
    assert lines(poor, "val/loss") == {}


# breaks if another number of timesteps is measured, or they are not spread
@pytest.mark.effect("run.validation.timesteps")
def test_validation_timesteps_counts_those_measured(rich: Path) -> None:
    for line in lines(rich, "val/loss").values():
        at = {name: value for name, value in line.items() if name.startswith("val/loss_at/") and "quartile" not in name}
        assert at.keys() == {"val/loss_at/250", "val/loss_at/750"}
        assert sum(at.values()) / 2 == pytest.approx(line["val/loss"])


# breaks if previews are sampled at other steps, or by default
@pytest.mark.effect("run.preview.every")
def test_preview_every_sets_the_preview_interval(rich: Path, poor: Path) -> None:
    assert names(rich / "samples") == ["grid.png", "step-00000000", "step-00000003", "step-00000006"]
    assert names(poor / "samples") == []


# breaks if other weights generate the samples than requested
@pytest.mark.effect("run.preview.weights")
def test_preview_weights_selects_raw_or_ema(rich: Path, prepare: Any) -> None:
    assert {path.name for path in rich.glob("samples/step-*/*.png")} == {"00-shadow.png"}
    drawn = {}
    for which in ("both", "raw", "ema"):
        ready = prepare(
            run__steps=1,
            run__preview__every=1,
            run__preview__weights=which,
            optim__lr=0.02,
            optim__ema__rule="constant",
            **COMMON,
        )
        ready.trainer.run()
        folder = ready.folder.samples / "step-00000001"
        drawn[which] = {name: np.asarray(Image.open(folder / name)) for name in names(folder)}
    assert {which: list(steps) for which, steps in drawn.items()} == {
        "both": ["00-raw.png", "00-shadow.png"], "raw": ["00-raw.png"], "ema": ["00-shadow.png"],
    }  # fmt: skip
    assert np.array_equal(drawn["both"]["00-raw.png"], drawn["raw"]["00-raw.png"])
    assert np.array_equal(drawn["both"]["00-shadow.png"], drawn["ema"]["00-shadow.png"])
    assert not np.array_equal(drawn["both"]["00-raw.png"], drawn["both"]["00-shadow.png"])


# breaks if one of several intervals is ignored, or two at the same step save twice
@pytest.mark.effect("run.save.every")
def test_several_save_intervals_all_apply(prepare: Any) -> None:
    ready = prepare(
        run__epochs=2, run__steps=None, run__save__every=["2 steps", "1 epoch"], run__save__keep=None, **COMMON
    )
    ends = [ready.job.dataset.timeline.steps_until(epochs) for epochs in (1, 2)]
    ready.trainer.run()
    expected = sorted({*range(2, ready.job.resolved.steps + 1, 2), *ends, ready.job.resolved.steps})
    assert names(ready.folder.checkpoints) == [f"step-{step:08d}" for step in expected]


# breaks if exports by epochs do not wait for the epoch's end, or others do
@pytest.mark.effect("run.export.from_epoch")
def test_export_from_epoch_delays_exports_by_epochs() -> None:
    exporter = Exporter([Every.parse("1 epoch"), Every.parse("5 steps")], from_epoch=3)
    ends = [Progress(step=10 * e + 1, last_step=99, epoch=e, epoch_ends=True) for e in range(4)]
    assert [exporter.due(p) for p in ends] == [False, False, True, True]
    assert exporter.due(Progress(step=5, last_step=99, epoch=0))


# breaks if the model card is written without the entries of the recipe
@pytest.mark.effect("run.export.card")
def test_export_card_adds_entries_to_the_header_of_the_model_card(prepare: Any) -> None:
    card = {"license": "mit", "tags": ["toys", "red"]}
    ready = prepare(run__steps=1, optim__ema__rule="none", run__export__card=card, **COMMON)
    ready.trainer.run()
    ready.job.finish()
    [text] = [path.read_text() for path in ready.folder.exports.glob("*/README.md")]
    header = yaml.safe_load(text.split("---\n")[1])
    assert header["license"] == "mit"
    assert {"toys", "red", "text-to-image"} <= {*header["tags"]}


# breaks if the name does not come from its template, or the average's name is the same
@pytest.mark.effect("run.export.name")
@pytest.mark.effect("run.export.single_file_folder")
@pytest.mark.effect("run.export.single_file_dtype")
def test_exports_are_named_and_placed_as_asked(prepare: Any, tmp_path: Path) -> None:
    ready = prepare(
        run__steps=3,
        run__name="sunset",
        run__export__name="last-{name}-ep{epoch:02}-gs{step:05}",
        run__export__single_file=True,
        run__export__single_file_dtype="fp16",
        run__export__single_file_folder=str(tmp_path / "for-others"),
        **COMMON,
    )
    ready.trainer.run()
    ready.job.finish()
    name = "last-sunset-ep01-gs00003"
    assert names(ready.folder.exports) == [name, f"{name}-ema"]
    assert names(tmp_path / "for-others") == [f"{name}-ema.safetensors", f"{name}.safetensors"]
    with safe_open(tmp_path / "for-others" / f"{name}.safetensors", "pt") as tensors:
        assert {tensors.get_slice(key).get_dtype() for key in list(tensors.keys())[:50]} == {"F16"}
    with safe_open(ready.folder.exports / name / "unet" / "diffusion_pytorch_model.safetensors", "pt") as tensors:
        assert {tensors.get_slice(key).get_dtype() for key in tensors.keys()} == {"F32"}  # noqa: SIM118


@pytest.mark.parametrize("template", ["../{name}", "{name}/{step}", "{who}", "{step", ""])
def test_invalid_export_name_is_refused(template: str) -> None:
    with pytest.raises(RecipeError, match=r"run\.export\.name"):
        read_text("schema: 1", overrides=[f"run.export.name='{template}'"])


# breaks if nothing is written, or not at each epoch's start
@pytest.mark.effect("run.schedule_file")
def test_schedule_file_lists_contents_of_each_batch(prepare: Any, poor: Path) -> None:
    ready = prepare(run__epochs=2, run__steps=None, run__schedule_file=True, **COMMON)
    ready.trainer.run()
    for number in (0, 1):
        lines = (ready.folder.logs / f"ep{number}_batch_schedule.txt").read_text().splitlines()
        epoch = ready.job.dataset.timeline.epoch(number)
        assert len(lines) == len(epoch.order)
        assert lines[0].startswith("step:00000, wh:[")
        catalogue, row = ready.job.dataset.catalogue, ready.job.dataset.rows[epoch.order[0]]
        assert lines[0].endswith(f"path:{catalogue.path(int(row))}")
    assert not list(poor.glob("logs/ep*"))


# breaks if the files are always in logs/, or in both folders
@pytest.mark.effect("run.schedule_place")
def test_schedule_place_run_writes_into_the_run_folder(prepare: Any) -> None:
    ready = prepare(run__steps=1, run__schedule_file=True, run__schedule_place="run", **COMMON)
    ready.trainer.run()
    assert [path.parent for path in ready.folder.path.rglob("ep*_batch_schedule.txt")] == [ready.folder.path]


# breaks if nothing is sent, to another project, or to another run after resuming
@pytest.mark.effect("run.wandb.mode")
@pytest.mark.effect("run.wandb.project")
def test_wandb_receives_the_tensorboard_values(prepare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", seen)
    settings = {"run__wandb__mode": "offline", "run__wandb__project": "images", "run__preview__every": 2}
    assert not prepare(run__steps=1, **COMMON).trainer.run()
    assert not seen.begun, "off is off"
    ready = prepare(run__steps=2, run__validation__every=1, run__validation__timesteps=1, **settings, **COMMON)
    ready.trainer.run()
    for callback in ready.trainer.callbacks:
        callback.close()
    assert seen.begun[0]["project"] == "images"
    assert seen.begun[0]["mode"] == "offline"
    assert seen.begun[0]["dir"] == str(ready.folder.logs)
    tags = {tag for line in seen.logged for tag in line}
    assert {"step", "loss/step", "val/loss", "preview/0/raw", "lr/denoiser"} <= tags
    assert [line["step"] for line in seen.logged if "loss/step" in line] == [1, 2]
    assert seen.finished == 1
    on = prepare(run__steps=3, run__folder=ready.folder.path, run__allow_change=["run.steps"], **settings, **COMMON)
    on.trainer.run()
    assert seen.begun[1]["id"] == seen.begun[0]["id"]


def test_wandb_failure_and_absence_are_reported(prepare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = FakeWandb(fails=True)
    monkeypatch.setitem(sys.modules, "wandb", broken)
    ready = prepare(run__steps=2, run__wandb__mode="online", **COMMON)
    sentences: list[str] = []
    object.__setattr__(ready.trainer.host, "say", sentences.append)
    ready.trainer.run()
    assert len([line for line in sentences if "Weights & Biases rejected the data (no API key)" in line]) == 1
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RecipeError, match="is not installed") as caught:
        prepare(run__steps=2, run__wandb__mode="online", **COMMON)
    assert caught.value.code == "E1063"


class FakeWandb(ModuleType):
    """The library's calls, written down."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__("wandb")
        self.fails = fails
        self.begun: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.finished = 0

    def init(self, **options: Any) -> FakeWandb:
        if self.fails:
            raise RuntimeError("no API key")
        self.begun.append(options)
        return self

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)

    def define_metric(self, *_: Any, **__: Any) -> None: ...
    def finish(self, **_: Any) -> None:
        self.finished += 1

    Image = staticmethod(lambda pixels: pixels.shape)
    Settings = staticmethod(dict)
