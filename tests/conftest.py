"""Fixtures of all tests, collection order, and a model with images that whole runs are started from."""
# ruff: noqa: E402

from __future__ import annotations

import gc

# Nothing becomes garbage until the tests are collected, and collecting it takes a third of the import time.
gc.disable()

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# support code of the tests of a single folder of `compat`
sys.path += map(str, sorted(Path(__file__).parent.glob("compat/*/support")))

import hypothesis
import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint import draws, fault_injection, outside
from mezzotint.assets import ASSETS as assets
from mezzotint.cli import main
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.training.checkpoints import state
from mezzotint.weights.files import pickled, unpickling
from support import browsers
from support.forked import exit_status, fork, free_port, import_all, import_networks, variables

# the duration of an example depends on the load of the machine
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


NUMBERS = frozenset({"diffusion", "effects", "families", "nets", "parity", "runtimes", "sampling", "training"})
"""Folders whose tests compare numbers. In other folders, tests of files that import torch or numpy do."""


LONG = frozenset({"faults", "families", "journeys", "weights"})
"""Folders whose files take long. They run first, so that at the end no worker waits for a long file."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that compare numbers, which `make portable` repeats, and runs long ones first."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in LONG)
    for item in items:
        names = vars(getattr(item, "module", None) or SimpleNamespace())
        if item.path.relative_to(here).parts[0] in NUMBERS or "torch" in names or "np" in names:
            item.add_marker("numbers")


def pytest_collection_finish() -> None:
    """Turns garbage collection on, except for modules and collected tests, which stay until the end."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Prints how to install a browser if the browser tests were skipped."""
    if not browsers.is_installed():
        terminalreporter.write_line(browsers.MISSING)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(int(os.environ.get("MEZZOTINT_TEST_THREADS", "1")))
    # A build for CUDA without a GPU pretends to have devices once something is compiled; if the first backward pass
    # comes after that, it starts threads for them, and no fork of this process can compute gradients any more.
    torch.zeros(1, requires_grad=True).sum().backward()


@pytest.fixture
def pickles_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the unpickling program in this process, without dropping privileges: a separate process takes seconds to
    start. Tests of `weights/files/pickled.py` use the separate process."""

    def run(line: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = unpickling.main(list(line[3:]))  # without the interpreter, its flag and the program
        return subprocess.CompletedProcess(line, status, output.getvalue(), "")

    monkeypatch.setattr(unpickling, "drop_privileges", lambda *_: None)
    replacement = SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(pickled, "subprocess", replacement)


@pytest.fixture(autouse=True, scope="session")
def plot() -> Iterator[Callable[..., bytes]]:
    """Plots the loss curve of a run. Test runs skip it, because it takes longer than their steps, unless the test uses
    the fixture `curves`."""
    from mezzotint.reports import plots  # slow to import

    with pytest.MonkeyPatch.context() as patched:
        original = plots.plot_loss
        patched.setattr(plots, "plot_loss", lambda curves, *, title: b"")
        yield original


@pytest.fixture(autouse=True, scope="session")
def plot_overfit() -> Iterator[Callable[..., bytes]]:
    """The same for the curves of held-out images."""
    from mezzotint.reports import plots

    with pytest.MonkeyPatch.context() as patched:
        original = plots.plot_overfit
        patched.setattr(plots, "plot_overfit", lambda curves, *, best, title: b"")
        yield original


@pytest.fixture
def curves(plot: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss curve of a run is plotted."""
    monkeypatch.setattr("mezzotint.reports.plots.plot_loss", plot)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations are not measured, which takes as long as the rest of `check`; tasks/check/test_memory.py tests it."""
    from mezzotint.tasks.check.meta_model import Activations, MetaModel  # slow to import

    monkeypatch.setattr(
        MetaModel, "activations", lambda self, size, samples: Activations(samples, 1000 * samples, 0, 0)
    )


@pytest.fixture(autouse=True)
def _disarm_faults() -> Iterator[None]:
    yield
    fault_injection.arm("")


@pytest.fixture(scope="session")
def shallow_sd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete small Stable Diffusion model folder with a random UNet of two levels, for tests with hundreds of
    predictions."""
    from diffusers import UNet2DConditionModel  # slow to import, and few tests need it

    folder = tmp_path_factory.mktemp("shallow") / "model"
    stored = Path(__file__).parent / "parity" / "data" / "diffusers" / "tiny_sd"
    shutil.copytree(stored, folder, ignore=shutil.ignore_patterns("unet"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        unet = UNet2DConditionModel(
            sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), cross_attention_dim=32,
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), norm_num_groups=8, attention_head_dim=8,
        )  # fmt: skip
    unet.save_pretrained(folder / "unet")
    return folder


@pytest.fixture(scope="session")
def sdxl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete small SDXL model folder with random weights; its denoiser is conditioned on sizes."""
    from mezzotint.families.sdxl import Family  # slow to import, and few tests need it
    from support.model_export import export_model, tiny_model

    folder = tmp_path_factory.mktemp("sdxl") / "model"
    return export_model(tiny_model(Family, 5), folder)


@pytest.fixture(scope="session")
def refiner_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configurations of a small refiner: one text encoder, and an aesthetic score instead of the target size."""
    folder = tmp_path_factory.mktemp("refiner") / "model"
    shutil.copytree(assets / "models" / "tiny-sdxl", folder)
    shutil.copyfile(assets / "models" / "sdxl-refiner" / "model_index.json", folder / "model_index.json")
    for component in ("text_encoder", "tokenizer"):
        shutil.rmtree(folder / component)
    path = folder / "unet" / "config.json"
    narrower = {"cross_attention_dim": 48, "projection_class_embeddings_input_dim": 40 + 5 * 8}
    path.write_text(json.dumps(json.loads(path.read_text()) | narrower))
    return folder


# --- whole runs -----------------------------------------------------------------------------------------------------


def narrow_model(folder: Path) -> Path:
    """Writes configurations of a model small enough for hundreds of steps per test; its weights are random."""
    shutil.copytree(assets / "models" / "tiny-sd", folder)
    for name, narrower in {
        "unet": {
            "block_out_channels": [16, 32], "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
            "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "cross_attention_dim": 32, "layers_per_block": 1,
        },
        "text_encoder": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "projection_dim": 32},
        "vae": {"block_out_channels": [16, 16, 16, 16]},
    }.items():  # fmt: skip
        path = folder / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | narrower))
    return folder


@pytest.fixture
def another_sd(tmp_path: Path) -> Path:
    """A folder `other` with the weights of a model with the same layers and another width."""
    from mezzotint.families.sd import Family  # slow to import, and few tests need it
    from support.model_export import export_model, load_model

    path = narrow_model(tmp_path / "wider") / "unet" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"block_out_channels": [16, 48]}))
    settings = ModelSettings(path=tmp_path / "wider", weights="random")
    folder = tmp_path / "other"
    export_model(load_model(Family, settings), folder)
    return folder


def draw_images(folder: Path, count: int = 10) -> Path:
    """Writes captioned images of three sizes, each of one colour."""
    folder.mkdir(parents=True)
    for number in range(count):
        size = ((48, 48), (64, 48), (48, 64))[number % 3]
        colour = tuple(int(255 * draws.uniform(draws.key(0, "colour", number, c))) for c in range(3))
        Image.new("RGB", size, colour).save(folder / f"{number:02d}.png")
        (folder / f"{number:02d}.txt").write_text(f"image number {number}\n")
    return folder


class World:
    """A folder with a model and images, and runs over them in this process or in a forked one that can be killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        import_all()
        self.model = narrow_model(root / "model")
        self.images = draw_images(root / "images")

    def words(self, name: str, **settings: Any) -> list[str]:
        """Arguments `RECIPE key=value …` of a short run; the keyword `a__b` is the setting a.b."""
        recipe = self.root / f"{name}.yaml"
        if not recipe.exists():  # another process of the same run may be reading it
            recipe.write_text("schema: 1\n")
        values: dict[str, Any] = {
            "model.path": self.model,
            "model.weights": "random",
            "data.path": self.images,
            "data.cache.path": self.root / "cache",
            "data.resolution": 48,
            "data.buckets.step": 8,
            "data.batch_size": 4,
            "data.workers": 0,
            "data.crop": "random",
            "data.flip": 0.5,
            "data.captions.dropout": 0.1,
            "optim.lr": 1e-3,
            "optim.ema.rule": "ramp",
            "run.folder": self.root / name,
            "run.steps": 8,
            "run.device": "cpu",
            "run.threads": 1,
            "run.tensorboard": False,
            "run.log_samples": True,
            "run.save.every": 3,
        } | {key.replace("__", "."): value for key, value in settings.items()}
        return [
            str(recipe),
            *(
                f"{key}={json.dumps(v) if v is None or isinstance(v, (bool, list, dict)) else v}"
                for key, v in values.items()
            ),
        ]

    def train(self, name: str, verb: str = "train", **settings: Any) -> int:
        """Runs in this process; returns the exit status."""
        return main([verb, *self.words(name, **settings)])

    def fork(
        self, name: str, verb: str = "train", fault: str = "", env: dict[str, str] | None = None, **settings: Any
    ) -> int:
        """Starts a run in a forked process; returns its PID. Its output goes to NAME.out."""
        import_networks()
        fault_of = {"MEZZOTINT_FAULT": fault} if fault else {}
        return fork([verb, *self.words(name, **settings)], self.root / f"{name}.out", (env or {}) | fault_of)

    def fork_group(self, name: str, processes: int, faults: dict[int, str] | None = None, **settings: Any) -> list[int]:
        """Starts a run in several forked processes over loopback; returns their PIDs by rank."""
        port = free_port()
        return [
            self.fork(name, fault=(faults or {}).get(rank, ""), env=variables(rank, port, processes), **settings)
            for rank in range(processes)
        ]

    def wait(self, child: int) -> int:
        """The exit status of a forked run: 128 + n for signal n."""
        return exit_status(child)

    def out(self, name: str) -> str:
        """Output of the forked runs with a name."""
        return (self.root / f"{name}.out").read_text()

    def end(self, name: str) -> End:
        """Final state of a run."""
        return End.of(self.root / name)


@dataclass(frozen=True)
class End:
    """Final state of a run, for comparisons: a digest of the tensors of its newest checkpoint, and its log."""

    step: int
    tensors: str
    progress: dict[str, Any]
    metrics: tuple[tuple[Any, ...], ...]
    samples: tuple[str, ...]

    @staticmethod
    def of(folder: Path) -> End:
        newest = state.newest_valid(folder / "checkpoints").path
        assert newest is not None, "no checkpoint"
        restored = state.read(newest)
        digest = hashlib.sha256()
        for name, tensor in sorted(restored.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        lines = outside.read_lines(folder / "metrics.jsonl")
        metrics = tuple(
            (m["step"], float(m["loss"]).hex(), float(m["norm"]).hex(), m["samples_digest"])
            for m in lines
            if "loss" in m
        )
        logged = (folder / "logs" / "samples.rank0.jsonl").read_text().splitlines()
        progress = {k: v for k, v in restored.values["progress"].items() if k != "seconds"}
        return End(restored.step, digest.hexdigest(), progress, metrics, tuple(logged))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"))


CLIP_SHADE = 12


@pytest.fixture(scope="session")
def write_clip() -> Callable[..., Path]:
    """`write_clip(path, 20)` writes 20 frames; frame n has the shade 12 · n and a white upper left quarter. The default
    codec is lossless."""
    return _write_clip


def _write_clip(
    path: Path,
    num: int = 20,
    *,
    codec: str = "libx264",
    size: tuple[int, int] = (48, 32),
    rate: int = 10,
    pix_fmt: str = "yuv444p",
    options: Mapping[str, str] | None = None,
    ticks: Sequence[int] | None = None,
    sound: bool = False,
    container: Mapping[str, str] | None = None,
) -> Path:
    import av  # an extra, and few tests need it

    path.parent.mkdir(parents=True, exist_ok=True)
    chosen = {"qp": "0", "g": "5"} if codec == "libx264" else {}
    with av.open(str(path), "w", options=dict(container or {})) as file:
        if num:
            stream = file.add_stream(codec, rate=rate, options=chosen | dict(options or {}))
            stream.width, stream.height = size
            stream.pix_fmt = pix_fmt
            stream.codec_context.thread_count = 1
        if sound:
            heard = file.add_stream("aac", rate=8000)
        for number in range(num):
            image = np.full((size[1], size[0], 3), CLIP_SHADE * number % 240, np.uint8)
            image[: size[1] // 2, : size[0] // 2] = 255
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            if ticks is not None:
                frame.pts, frame.time_base = ticks[number], Fraction(1, 1000)
            file.mux(stream.encode(frame))
        if num:
            file.mux(stream.encode())
        if sound:
            for start in range(0, 8192, 1024):
                quiet = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                quiet.sample_rate, quiet.pts = 8000, start
                file.mux(heard.encode(quiet))
            file.mux(heard.encode())
    return path
