"""`bench --gpu`: everything that wants to be looked at on a real card, into one file that can be sent. First whether it
is right (against the CPU, in bf16, compiled, fused, gone on with), then how fast it is and what memory it takes.

The model has the shape of Stable Diffusion 1.5 and random weights, the pictures are drawn: nothing is fetched. What
fails is written down, and the rest goes on.
"""

from __future__ import annotations

import gc
import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from mezzotint.data.buckets import buckets
from mezzotint.recipe.base import with_values
from mezzotint.recipe.recipe import Recipe, effective
from mezzotint.runtimes.base import Launch, compile_blocks, graphs_compiled, open_runtime
from mezzotint.tasks import assemble
from mezzotint.tasks.bench import _pictures
from mezzotint.tasks.cache import cache
from mezzotint.tasks.check.memory import Outline, memory_of
from mezzotint.tasks.resolving import resolve
from mezzotint.tasks.train import train
from mezzotint.training.loop import Trainer
from mezzotint.training.update import Update
from mezzotint.weights.folder.model_folder import shipped

LIMIT = 20 * 60.0
"""Seconds after which nothing new is begun: the last thing begun may take some minutes more."""

SHARE = 5 * 60.0
"""Seconds that the steps of a timed part may take in all; loading and compiling come on top."""

_FEWEST = 8  # steps of a timed row, however slow the card

_SMALL = 16
"""What widths are divided by in a dry run."""

Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Card:
    """What is looked at. recipe: with a model and pictures that are there. folder: for what comes and goes. measured:
    the rows of a benchmark of a recipe."""

    recipe: Recipe
    is_small: bool
    folder: Path
    measured: Callable[[Recipe, int], list[Result]]

    @property
    def steps(self) -> int:
        """Of a timed row, at the most."""
        return _FEWEST if self.is_small else 65

    def to_compare(self, **run: Any) -> Recipe:
        """For numbers that are compared: few small pictures, no average, no warm-up."""
        side = 64 if self.is_small else 256
        values = {"data.resolution": side, "data.batch_size": 2, "optim.ema.rule": "none", "run.precision": "fp32"}
        values |= {"optim.schedule.warmup_steps": 0, "run.tf32": False, "run.steps": 2}
        return with_values(self.recipe, values | {f"run.{name}": value for name, value in run.items()})


def look(
    card: Card, about: Result, say: Callable[[str], None], write: Callable[[Result], None],
    clock: Callable[[], float] = time.monotonic,
) -> Result:  # fmt: skip
    """All of it. about: where the figures come from. write: called with what is known, after each part. clock:
    seconds."""
    began = clock()
    document: Result = about | {"device": _device(), "is_dry_run": card.is_small, "parts": {}}
    for name, part in PARTS.items():
        at = clock()
        if at - began > LIMIT:
            document["parts"][name] = {"ok": None, "left_out": "the time was over"}
            write(document)
            continue
        say(f"{name} …")
        try:
            result = part(card)
        except Exception as error:  # a card that fails in one thing can still be asked for the others
            result = {"ok": False, "error": f"{type(error).__name__}: {error}", "where": traceback.format_exc()[-2000:]}
        document["parts"][name] = result | {"seconds": clock() - at}
        say(f"{name}: {_word(result)}")
        write(document)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return document


def _word(result: Result) -> str:
    if "left_out" in result:
        return f"left out: {result['left_out']}"
    return {True: "right", False: "NOT right", None: "measured"}[result["ok"]] + (
        f" ({result['error'].splitlines()[0]})" if "error" in result else ""
    )


def model_into(folder: Path, *, is_small: bool) -> Path:
    """The configurations of Stable Diffusion 1.5, with the small tokenizer that ships; its widths divided in a dry
    run."""
    by = _SMALL if is_small else 1
    shutil.copytree(shipped("tiny-sd"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    for part in ("unet", "vae", "text_encoder"):
        config = json.loads((shipped("sd1") / part / "config.json").read_text("utf-8"))
        for name in ("hidden_size", "intermediate_size", "projection_dim", "cross_attention_dim"):
            if name in config:
                config[name] //= by
        if "block_out_channels" in config:
            config["block_out_channels"] = [width // by for width in config["block_out_channels"]]
        if is_small:
            small = {"norm_num_groups": 4, "attention_head_dim": 4, "num_attention_heads": 4, "num_hidden_layers": 2}
            config |= {name: value for name, value in small.items() if name in config}
        if part == "text_encoder":
            ids = json.loads((shipped("tiny-sd") / part / "config.json").read_text("utf-8"))
            config |= {name: ids[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        (folder / part / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def prepared(recipe: Recipe, folder: Path, *, is_small: bool) -> Recipe:
    """The recipe over that model and drawn pictures. folder: where both go."""
    side, count = (64, 8) if is_small else (recipe.data.resolution, 256)
    pictures = _pictures.folder_of(folder, count, side)
    _pictures.draw(pictures, count, side)
    values: dict[str, Any] = {"model.path": model_into(folder / "model", is_small=is_small), "model.weights": "random"}
    values |= {"data.resolution": side, "data.buckets.shape": "square", "data.cache.path": folder / "cache"}
    values |= {"data.workers": 0 if is_small else recipe.data.workers, "run.preview.every": None}
    values |= {"data.batch_size": 2} if is_small else {}
    recipe = with_values(recipe, values)
    return with_values(recipe, {"data": _pictures.with_stand_in(recipe.data, pictures)})


@contextmanager
def _opened(recipe: Recipe) -> Iterator[Trainer]:
    with closing(open_runtime(recipe.run, Launch())) as runtime:
        dataset = assemble.open_dataset(recipe, runtime)
        files = assemble.open_files(recipe)
        caches = assemble.open_caches(recipe, files)
        if caches.latents is not None or caches.text is not None:
            rows = [(dataset.catalogue, dataset.rows, recipe.data)]
            cache.fill_rows(recipe, files, runtime, rows, caches, lambda text: None)
        resolved = resolve(recipe, recipe.run.steps or 2)
        model = assemble.open_model(resolved, files, runtime)
        with assemble.open_trainer(resolved, runtime, dataset, caches, model) as trainer:
            yield trainer


def _trained(recipe: Recipe, begin: Callable[[Trainer], None] = lambda trainer: None) -> tuple[list[float], Tensor]:
    """The loss of each step, and the first step's gradients in a row, on the CPU."""
    losses, grads = [], dict[str, Tensor]()
    with _opened(recipe) as trainer:
        begin(trainer)
        update, apply = trainer.model.update, trainer.model.update.apply

        def watched(*, loss_scale: Tensor, **arguments: Any) -> None:
            for name, parameter in () if grads else trainer.model.trained.items():
                if parameter.grad is not None:
                    grads[name] = (parameter.grad.float() / loss_scale).cpu()
            apply(loss_scale=loss_scale, **arguments)

        vars(update)["apply"] = watched
        for batches in trainer.batches:
            losses.append(trainer.train_step(batches).result().loss)
    return losses, torch.cat([grads[name].flatten() for name in sorted(grads)])


def _apart(mine: tuple[list[float], Tensor], theirs: tuple[list[float], Tensor]) -> Result:
    (losses, grads), (other_losses, others) = mine, theirs
    pairs = zip(losses, other_losses, strict=True)
    return {
        "losses": max(abs(a - b) / abs(b) for a, b in pairs),
        "gradients": float((grads - others).norm() / others.norm()),
        "length": float(grads.norm() / others.norm()) - 1.0,
        "direction": 1.0 - float(torch.nn.functional.cosine_similarity(grads.double(), others.double(), dim=0)),
    }


def _parity(card: Card) -> Result:
    """Float32 here against float32 on the CPU: draws, losses, gradients."""
    apart = _apart(_trained(card.to_compare()), _trained(card.to_compare(device="cpu")))
    return {"ok": apart["losses"] < 1e-3 and apart["gradients"] < 1e-2, "apart": apart}


def _bf16(card: Card) -> Result:
    """The defaults of bf16 against float32."""
    exact = _trained(card.to_compare())
    apart = _apart(_trained(card.to_compare(precision="bf16", tf32="auto")), exact)
    return {"ok": abs(apart["length"]) < 1e-2 and apart["direction"] < 1e-2, "apart": apart}


def _compiled(card: Card) -> Result:
    """Compiled bf16 against eager, and what is compiled after the first step. Without a GPU one block is traced and run
    as it is."""
    recipe = card.to_compare(precision="bf16", steps=4)
    counts: list[int] = []

    def compiled(trainer: Trainer) -> None:
        blocks = [*trainer.model.family.blocks()]
        if trainer.runtime.device.type == "cuda":
            compile_blocks(blocks, with_values(recipe.run, {"compile": True}))
        else:
            blocks[0][0].compile(backend="eager", dynamic=False)
        apply = trainer.model.update.apply

        def counted(**arguments: Any) -> None:
            counts.append(graphs_compiled())
            apply(**arguments)

        vars(trainer.model.update)["apply"] = counted

    torch._dynamo.reset()
    apart = _apart(_trained(recipe, compiled), _trained(recipe))
    later = counts[-1] - counts[0]
    return {
        "ok": apart["direction"] < 1e-2 and later == 0, "apart": apart, "graphs": counts[0], "graphs_later": later,
    }  # fmt: skip


def _fused(card: Card) -> Result:
    """Three steps of the fused AdamW against torch's own, tensor by tensor."""
    with closing(open_runtime(card.recipe.run, Launch())) as runtime:
        start = {f"denoiser/{n}": torch.linspace(-1, 1, n, device=runtime.device) for n in (7, 1 << 10, 1 << 20)}
        mine, theirs = ({n: torch.nn.Parameter(t.clone()) for n, t in start.items()} for _ in range(2))
        settings = with_values(card.to_compare().optim, {"clip.norm": None})
        update = Update(mine, settings, separate_masters=False)
        adamw: Any = settings.optimizer
        plain = torch.optim.AdamW(
            theirs.values(), lr=1e-3, betas=adamw.betas, eps=adamw.eps, weight_decay=adamw.weight_decay, foreach=False
        )
        one = torch.ones((), device=runtime.device)
        for number in range(3):
            for one_of in (mine, theirs):
                for p in one_of.values():
                    p.grad = torch.sin(p.detach() * (number + 1))
            lr = {group.name: 1e-3 for group in update.groups}
            update.apply(loss_scale=one, norms=one[None], found_inf=0 * one, lr=lr, update_ema=False)
            plain.step()
        apart = max(float((mine[n] - theirs[n]).detach().abs().max()) for n in start)
    return {"ok": apart < 1e-6, "apart": apart}


def _resumed(card: Card) -> Result:
    """Four steps at once against two and two more, deterministic: to the bit."""
    losses = []
    for name, stops in (("whole", (4,)), ("parted", (2, 4))):
        recipe = with_values(card.to_compare(deterministic=True, precision="bf16"), {"run.name": name})
        recipe = with_values(recipe, {"run.folder": card.folder / name, "optim.schedule.kind": "constant"})
        for steps in stops:
            text = yaml.safe_dump(effective(with_values(recipe, {"run.steps": steps})), sort_keys=False)
            file = card.folder / f"{name}-{steps}.yaml"
            file.write_text(text, "utf-8")
            if train.run([str(file)]):
                return {"ok": False, "error": f"mezzotint train {file.name} failed"}
        lines = (card.folder / name / "metrics.jsonl").read_text("utf-8").splitlines()
        losses.append([row["loss"] for row in map(json.loads, lines) if "loss" in row])
    torch.use_deterministic_algorithms(False)
    return {"ok": losses[0] == losses[1] and len(losses[0]) == 4, "losses": losses}


def _average(card: Card) -> Result:
    """The average that leaves on a stream of its own against the one beside the weights."""
    ends = []
    for place in ("same", "cpu"):
        recipe = with_values(card.to_compare(steps=4), {"optim.ema.rule": "ramp", "optim.ema.device": place})
        with _opened(recipe) as trainer:
            for batches in trainer.batches:
                trainer.train_step(batches).result()
            assert trainer.model.update.ema is not None
            ends.append({n: t.cpu() for n, t in trainer.model.update.ema.weights.items()})
    apart = max(float((ends[0][n] - ends[1][n]).abs().max()) for n in ends[0])
    return {"ok": apart < 1e-6, "apart": apart}


def _speed(card: Card) -> Result:
    """As written, fast, and the loop of diffusers' script, in turn."""
    return {"ok": None, "rows": card.measured(card.recipe, _num_steps(card, card.recipe, rows=3))}


def _graphs(card: Card) -> Result:
    """Compiled, with CUDA graphs, one picture at a time."""
    if not torch.cuda.is_available():
        return {"ok": None, "left_out": "there are none without a GPU"}
    values = {"data.batch_size": 1, "run.compile": True, "run.kernels.graphs": True, "run.frozen_dtype": "same"}
    recipe = with_values(card.recipe, values)
    return {"ok": None, "rows": card.measured(recipe, _num_steps(card, recipe, rows=1))}


def _num_steps(card: Card, recipe: Recipe, *, rows: int) -> int:
    """Of each of so many timed rows: fewer on a slow card, so that all of them keep to `SHARE`."""
    return max(_FEWEST, min(card.steps, int(SHARE / (rows * _seconds_a_step(recipe)))))


def _seconds_a_step(recipe: Recipe) -> float:
    """Of the third step, without compiling."""
    plain = with_values(recipe, {"run.steps": 3, "run.compile": False, "run.kernels.graphs": False})
    with _opened(plain) as trainer:
        began = time.monotonic()
        for batches in trainer.batches:
            began = time.monotonic()
            trainer.train_step(batches).result()
        return time.monotonic() - began


def _memory(card: Card) -> Result:
    """What `check` counts against what a step takes."""
    recipe = with_values(card.recipe, {"run.steps": 3})
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    counted = memory_of(Outline(recipe, kind), dict.fromkeys(buckets.table(recipe.data), recipe.data.batch_size))
    if kind == "cpu":
        return {"ok": None, "counted": counted.peak}
    torch.cuda.reset_peak_memory_stats()
    _trained(with_values(recipe, {"run.kernels.measured": False}))
    peak = torch.cuda.max_memory_allocated()
    return {"ok": abs(peak / counted.peak - 1) < 0.1, "counted": counted.peak, "measured": peak}


PARTS: Mapping[str, Callable[[Card], Result]] = {
    "parity with the CPU": _parity,
    "bf16": _bf16,
    "fused update": _fused,
    "average on a stream of its own": _average,
    "going on": _resumed,
    "compiled": _compiled,
    "memory": _memory,
    "speed": _speed,
    "CUDA graphs": _graphs,
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
    lines = [f"mezzotint bench --gpu: {document['device']['name']}", ""]
    for name, result in document["parts"].items():
        lines.append(f"{name:<34}{_word(result):<48}{result.get('seconds', 0):.0f} s")
        lines += [
            f"  {row['name']:<32}{row['images_per_second']['processed']:.4g} images/s, "
            f"{row['peak_memory_bytes'] / 1e9:.3g} GB"
            for row in result.get("rows", ())
        ]
    return lines
