"""A run of a foreign command, prepared as `mezzotint train --as NAME` does it and stopped before its first step; on the
tiny folders of flow-matching models, which hold networks of the real classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, open_runtime
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.tasks.reading.arguments import parse
from mezzotint.tasks.reading.continuing import folder_of
from mezzotint.tasks.train.job import Job, RunStart
from mezzotint.tasks.train.prepare import prepare as prepare_run
from mezzotint.training.interrupts import Interrupts

MODELS = Path(__file__).parents[3] / "parity" / "data" / "flow"
OURS = (
    "data.cache.path=cache", "run.device=cpu", "run.threads=1", "run.tensorboard=false", "data.verify=on_first_use",
    "sample.steps=1",
)  # fmt: skip
PRIOR = ("--with_prior_preservation", "--class_data_dir=kind", "--class_prompt=a cat", "--num_class_images=2")
PLAIN = (
    "--resolution=32", "--max_sequence_length=48", "--max_train_steps=2", "--train_batch_size=2", "--seed=7",
    "--output_dir=out", "--learning_rate=1e-2",
)  # fmt: skip


def folder_of_model(dialect: str) -> Path:
    """The tiny folder of the model that a dialect trains."""
    last = dialect.removeprefix("diffusers-dreambooth-").removeprefix("lora-")
    return MODELS / last.replace("-", "_") / "model"


def images(folder: Path, *shades: int, size: tuple[int, int] = (40, 32)) -> None:
    """Images of one shade each."""
    folder.mkdir(exist_ok=True)
    for shade in shades:
        Image.new("RGB", size, (shade, 80, 160)).save(folder / f"{shade:03}.png")


def line(dialect: str, *words: str) -> list[str]:
    """A command over the folder `cat`, with its launcher and script. Later words override earlier ones."""
    script = f"train_{dialect.removeprefix('diffusers-').replace('-', '_')}.py"
    named = [f"--pretrained_model_name_or_path={folder_of_model(dialect)}", "--instance_prompt=a photo of sks"]
    source = [] if any(word.startswith("--dataset_name") for word in words) else ["--instance_data_dir=cat"]
    return ["accelerate", "launch", script, *named, *source, *PLAIN, *words]


@contextmanager
def prepared(dialect: str, *words: str, ours: tuple[str, ...] = ()) -> Iterator[Job]:
    """The run of a command of a flow-matching model before its first step."""
    with prepared_line(dialect, line(dialect, *words), ours) as job:
        yield job


@contextmanager
def prepared_line(dialect: str, words: Sequence[str], ours: tuple[str, ...] = ()) -> Iterator[Job]:
    """The run of a complete command before its first step."""
    reading = parse(["--as", dialect, *OURS, *ours, "--", *words], "train")
    recipe = resolve_paths(reading)
    runtime = open_runtime(recipe.run, Launch())
    folder = RunFolder(folder_of(reading, recipe)).open()
    job = prepare_run(RunStart(reading, recipe, Launch(), runtime, folder, Interrupts()))
    try:
        yield job
    finally:
        job.close()


def batches(job: Job) -> Any:
    """The batches of the next step."""
    return next(iter(job.trainer.batches))


def largest_changes(job: Any, step: Any) -> dict[str, float]:
    """How far a step has moved each tensor at most."""
    before = {name: tensor.detach().clone() for name, tensor in job.model.update.masters.items()}
    job.trainer.train_step(step).result()
    return {name: float((job.model.update.masters[name].detach() - old).abs().max()) for name, old in before.items()}


def record_inputs(job: Any) -> list[dict[str, Any]]:
    """Keyword inputs of the denoiser, recorded from now on."""
    calls: list[dict[str, Any]] = []
    job.model.family.parts()["denoiser"].register_forward_pre_hook(
        lambda module, inputs, named: calls.append(dict(named)), with_kwargs=True
    )
    return calls
