"""Checks a GPU and writes one file: losses are compared with the CPU, peak memory with the estimate of `check`, a
resumed run with an uninterrupted one, and the speed is measured.

    python tools/check_gpu.py             checks this GPU and writes bench/gpu/gpu.json
    python tools/check_gpu.py --dry-run   the same with a model of a sixteenth of the width, also on a CPU

The model has the shape of Stable Diffusion 1.5 and random weights, and the images are synthetic: nothing is
downloaded. A check that fails is recorded, the others still run, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mezzotint import durable
from mezzotint.data.buckets import buckets
from mezzotint.runtimes.base import Launch, open_runtime
from mezzotint.settings.base import with_values
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.reading.read import Reading, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.bench import synthetic
from mezzotint.tasks.bench.bench import Options, bench
from mezzotint.tasks.bench.measuring import Measured, measure
from mezzotint.tasks.bench.origin import origin
from mezzotint.tasks.check.memory import memory_of
from mezzotint.tasks.check.meta_model import MetaModel
from mezzotint.tasks.reading import choices
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.train import train
from mezzotint.weights.folder.model_folder import shipped_folder

_SMALL = 16
"""What widths are divided by in a dry run."""

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Card:
    """What is checked. reading: of the line. recipe: with a model and images that exist. folder: for temporary
    files."""

    reading: Reading
    recipe: Recipe
    is_small: bool
    folder: Path

    def to_compare(self, **run: Any) -> Recipe:
        """A short recipe whose numbers are compared: small batches, no weight average, no warm-up."""
        side = 64 if self.is_small else 256
        values = {"data.resolution": (side,), "data.batch_size": 2, "optim.ema.rule": "none", "run.precision": "fp32"}
        values |= {"optim.schedule.warmup_steps": 0, "run.validation.timesteps": 1}
        return with_values(self.recipe, values | {f"run.{name}": value for name, value in run.items()})


def check_card(
    card: Card, names: Sequence[str], about: Result, say: Callable[[str], None], write: Callable[[Result], None]
) -> Result:
    """Runs these checks and returns the document. about: where the figures come from. write: called with the document
    after each check."""
    document: Result = about | {"device": _device(), "is_dry_run": card.is_small, "parts": {}}
    for name, check in ((name, CHECKS[name]) for name in names):
        say(f"{name} …")
        began = time.monotonic()
        try:
            result = check(card)
        except Exception as error:  # a card that fails one check can still be asked for the others
            result = {"ok": False, "error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-2000:]}
        document["parts"][name] = result | {"seconds": time.monotonic() - began}
        say(f"{name}: {_verdict(result)}")
        write(document)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return document


def _verdict(result: Result) -> str:
    if "error" in result:
        return f"FAILED ({result['error'].splitlines()[0]})"
    return {True: "ok", False: "FAILED", None: "measured"}[result["ok"]]


def write_model(folder: Path, *, is_small: bool) -> Path:
    """Writes the configurations of Stable Diffusion 1.5 and the small tokenizer that ships; widths are divided in a dry
    run."""
    by = _SMALL if is_small else 1
    shutil.copytree(shipped_folder("tiny-sd"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for part in ("unet", "vae", "text_encoder"):
        config = json.loads((shipped_folder("sd1") / part / "config.json").read_text("utf-8"))
        for name in ("hidden_size", "intermediate_size", "projection_dim", "cross_attention_dim"):
            if name in config:
                config[name] //= by
        if "block_out_channels" in config:
            config["block_out_channels"] = [width // by for width in config["block_out_channels"]]
        if is_small:
            small = {"norm_num_groups": 4, "attention_head_dim": 4, "num_attention_heads": 4, "num_hidden_layers": 2}
            config |= {name: value for name, value in small.items() if name in config}
        if part == "text_encoder":
            ids = json.loads((shipped_folder("tiny-sd") / part / "config.json").read_text("utf-8"))
            config |= {name: ids[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        (folder / part / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def prepare(recipe: Recipe, folder: Path, *, is_small: bool) -> Recipe:
    """The recipe with that model and synthetic images, both written below `folder`."""
    side, count = (64, 8) if is_small else (recipe.data.resolution[0], 256)
    values: dict[str, Any] = {"model.path": write_model(folder / "model", is_small=is_small), "model.weights": "random"}
    values |= {"data.resolution": (side,), "data.buckets.shape": "square", "data.cache.path": folder / "cache"}
    values |= {"data.workers": 0 if is_small else recipe.data.workers, "run.preview.every": None}
    values |= {"data.batch_size": 2} if is_small else {}
    recipe = with_values(recipe, values)
    return with_values(recipe, {"data": synthetic.with_images(recipe.data, count, folder)})


def _measure(recipe: Recipe, steps: int) -> Measured:
    with closing(open_runtime(recipe.run, Launch())) as runtime:
        return measure("gpu", recipe, runtime, steps, lambda text: None)


def _check_losses(card: Card) -> Result:
    """Three steps in float32 and in bf16 against float32 on the CPU, with the same random numbers."""
    expected = [step.loss for step in _measure(card.to_compare(device="cpu"), 3).steps]
    result: Result = {"ok": True, "losses": {"cpu": expected}}
    for precision, tolerance in (("fp32", 1e-3), ("bf16", 2e-2)):
        losses = [step.loss for step in _measure(card.to_compare(precision=precision), 3).steps]
        result["losses"][precision] = losses
        difference = max(abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True))
        result[precision] = {"relative_difference": difference, "tolerance": tolerance}
        result["ok"] = result["ok"] and difference < tolerance
    return result


def _check_memory(card: Card) -> Result:
    """The peak of three steps against the estimate of `check`. Kernels are not benchmarked: the estimate leaves out
    what trying them takes."""
    recipe = with_values(card.recipe, {"run.validation.timesteps": 1, "run.kernels.cudnn_benchmark": False})
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    estimate = memory_of(
        MetaModel(recipe, kind), dict.fromkeys(buckets.table(recipe.data), recipe.data.batch_size)
    ).peak
    if kind == "cpu":  # whose peak is that of the whole process
        return {"ok": None, "estimate": estimate}
    peak = _measure(recipe, 3).memory
    return {"ok": abs(peak / estimate - 1) < 0.1, "estimate": estimate, "measured": peak}


def _check_speed(card: Card) -> Result:
    """The recipe as written and with everything that is faster."""
    options = Options(steps=8 if card.is_small else 45, fast=True, as_json=True)
    with closing(open_runtime(card.recipe.run, Launch())) as runtime:
        return {"ok": None, "rows": bench(card.reading, card.recipe, options, runtime, Launch())["rows"]}


def _check_resume(card: Card) -> Result:
    """For each way of training, with tiny models (in a dry run for the first): four deterministic steps against two and
    two more, which must have the same losses bit for bit."""
    ways = {}
    for way, settings in list(WAYS.items())[: 1 if card.is_small else None]:
        losses = []
        for name, stops in (("whole", (4,)), ("resumed", (2, 4))):
            place = card.folder / f"{name} {way}"
            words = ["tiny_cpu", f"run.device={card.recipe.run.device}", "run.deterministic=true", *_QUIET, *settings]
            words += [f"run.folder={place}", f"data.cache.path={card.folder / 'cache of tiny models'}"]
            if any(train.run([*words, f"run.steps={steps}"]) for steps in stops):
                return {"ok": False, "error": f"the training of {way} failed", "ways": ways}
            rows = map(json.loads, (place / "metrics.jsonl").read_text("utf-8").splitlines())
            losses.append([row["loss"] for row in rows if "loss" in row])
        ways[way] = {"settings": settings, "losses": losses[0], "is_equal": losses[0] == losses[1]}
    torch.use_deterministic_algorithms(False)
    return {"ok": all(way["is_equal"] for way in ways.values()), "ways": ways}


_QUIET = ("data.batch_size=2", "run.log_every=1", "run.save.every=null", "optim.schedule.kind=constant")
_BF16 = ("run.precision=bf16",)
_LORA = (*_BF16, "model.adapter.kind=lora", "model.adapter.rank=4")
_FAMILIES = ("sdxl", "sd3", "flux", "chroma", "flux2", "qwen_image", "krea2", "wan", "z_image")
WAYS: Mapping[str, Sequence[str]] = {
    "float32": (),
    "bf16": _BF16,
    "fp16": ("run.precision=fp16",),
    "bf16 weights": (*_BF16, "run.weight_dtype=same"),
    "text encoder": ("model.train=[denoiser,text_encoder]",),
    "recomputed activations": (*_BF16, "run.gradient_checkpointing.enabled=true"),
    "channels last": (*_BF16, "run.kernels.channels_last=true"),
    "cached": ("data.cache.latents=true", "data.cache.text=true", "run.device_prefetch=2"),
    "worker processes": ("data.workers=2",),
    "EMA on the host": ("optim.ema.device=cpu",),
    "offloaded blocks": ("run.offload.blocks=2",),
    "LoRA on offloaded blocks": (*_LORA, "run.offload.blocks=2"),
    "LoRA": _LORA,
    "DoRA": ("model.adapter.kind=dora",),
    "LoKr": ("model.adapter.kind=lokr",),
    "Adafactor": ("optim.optimizer.kind=adafactor",),
} | {
    f"LoRA of {family}": (f"model.family={family}", f"model.path=tiny-{family.replace('_', '-')}", *_LORA)
    for family in _FAMILIES
}
"""The ways of training whose resume is checked: settings of the recipe tiny_cpu."""

CHECKS: Mapping[str, Callable[[Card], Result]] = {
    "losses agree with the CPU": _check_losses,
    "peak memory": _check_memory,
    "speed": _check_speed,
    "resuming is bit-exact": _check_resume,
}


def _device() -> Result:
    if not torch.cuda.is_available():
        return {"name": "CPU", "torch": torch.__version__}
    own = torch.cuda.get_device_properties(0)
    return {
        "name": own.name, "memory": own.total_memory, "capability": [own.major, own.minor], "torch": torch.__version__,
        "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
    }  # fmt: skip


def table(document: Result) -> list[str]:
    """The page, line by line."""
    lines = [document["device"]["name"], ""]
    for name, result in document["parts"].items():
        lines.append(f"{name:<34}{_verdict(result):<48}{result['seconds']:.0f} s")
        if "estimate" in result:
            measured = format_bytes(result["measured"]) if "measured" in result else "not measured without a GPU"
            lines.append(f"  {measured}, estimate of check {format_bytes(result['estimate'])}")
        lines += [
            f"  {row['name']:<32}{row['images_per_second']['processed']:.4g} images/s, "
            f"{format_bytes(row['peak_memory_bytes'])}"
            for row in result.get("rows", ())
        ]
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="a small model, also on a CPU")
    parser.add_argument("--only", choices=CHECKS, action="append", metavar="CHECK", help=f"one of: {', '.join(CHECKS)}")
    parser.add_argument("--out", type=Path, help="a folder for gpu.json")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings that differ from the recipe sd15")
    line = parser.parse_args(words)
    if not line.dry_run and not torch.cuda.is_available():
        parser.error("torch finds no GPU here; run it on a machine with a GPU, or add --dry-run")
    file = (line.out or durable.free_folder(Path("bench") / "gpu")) / "gpu.json"
    reading, _ = parse_with(["sd15", *line.settings], "bench")
    recipe, _ = choices.choose_seeds(resolve_paths(reading))
    with closing(open_runtime(recipe.run, Launch())) as runtime:
        about = origin(line.settings, runtime, Launch()) | {"command": ["python", "tools/check_gpu.py", *line.settings]}

    def say(text: str) -> None:
        print(text, flush=True)

    def write(document: Result) -> None:
        durable.write_json(file, document)

    with tempfile.TemporaryDirectory(prefix="mezzotint-gpu-") as name:
        prepared = prepare(recipe, Path(name), is_small=line.dry_run)
        file.parent.mkdir(parents=True, exist_ok=True)
        document = check_card(
            Card(reading, prepared, line.dry_run, Path(name)), line.only or list(CHECKS), about, say, write
        )
    print("\n".join([*table(document), "", f"the results are in {file}"]))
    return int(any(part["ok"] is False for part in document["parts"].values()))


if __name__ == "__main__":
    sys.exit(main())
