"""What a run says: before step 1 what it will do, at its end where everything lies, and the line that goes on."""

from __future__ import annotations

import io
import json
import math
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import mezzotint
from mezzotint.data import findings
from mezzotint.data.buckets import buckets
from mezzotint.data.findings.captions import LostWords
from mezzotint.recipe.counting import counted, listed, size
from mezzotint.recipe.reading.read import Reading
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.resume_rules import DEFAULT_STEPS
from mezzotint.recipe.sections.tokens import PART
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.check.notes import notes, of_names
from mezzotint.tasks.resolving import rate_factor, resolve
from mezzotint.training import lr
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.checkpoints import sharding
from mezzotint.training.checkpoints.state import Restored
from mezzotint.training.model import TrainableModel


def command(folder: RunFolder, launch: Launch, packages: Sequence[str] = ()) -> str:
    """The line that goes on with a run, to be typed as it stands. packages: that were allowed to be imported."""
    linked = json.dumps([str(path) for path in folder.linked_folders], ensure_ascii=False)
    words = [str(_from_here(folder.recipe)), *([f"run.linked_folders={linked}"] if folder.linked_folders else [])]
    allowed = "".join(f" --allow-package={name}" for name in packages)
    return f"{_starter(launch)} {shlex.join(words)}{allowed}"


def with_settings(words: Sequence[str], settings: Sequence[str], launch: Launch) -> str:
    """The line of this start, to be typed as it stands, with `key=value` laid over it. words: those behind the verb."""
    end = words.index("--") if "--" in words else len(words)
    keys = {setting.partition("=")[0] for setting in settings}
    kept = [word for word in words[:end] if word.partition("=")[0] not in keys]
    return f"{_starter(launch)} {shlex.join([*kept, *settings, *words[end:]])}"


def _starter(launch: Launch) -> str:
    if launch.world_size == 1:
        return "mezzotint train"
    machines = launch.world_size // launch.local_size
    many = f"--nnodes {machines} " if machines > 1 else ""
    return f"torchrun {many}--nproc-per-node {launch.local_size} -m mezzotint train"


def progress(live: LiveLine, what: str) -> Callable[[int, int], None]:
    """A progress callback that says every tenth part once, and nothing for small sets."""
    tenths: set[int] = set()

    def tell(done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if total >= 1000 and tenth not in tenths:
            tenths.add(tenth)
            live.say(f"{what}: {done:,} of {total:,}")

    return tell


def before_step_one(
    recipe: Recipe, launch: Launch, runtime: Runtime, dataset: Dataset, model: TrainableModel, steps: int,
    folder: RunFolder, *, lost: LostWords | None = None,
) -> list[str]:  # fmt: skip
    """The run in a dozen lines: model, parameters, data, batch arithmetic, length, precision, devices, saving. lost:
    captions that the text encoder cuts."""
    of_data = findings.as_notes(
        findings.of_data(
            dataset.catalogue, recipe.data, rows=dataset.rows, held=dataset.held,
            others=[one.catalogue for one in dataset.sets.values()], lost=lost,
        )
    )  # fmt: skip
    of_model = (*model.family.notes, *(model.adapter.notes if model.adapter is not None else ()))
    buckets = len(_bucket_counts(recipe, dataset))
    of_recipe = notes(recipe, prediction=model.prediction, device=runtime.device.type, buckets=buckets)
    names = of_names(recipe, model.family.parts(), model.trained)
    lines = [
        ("model", _model_line(recipe)),
        *(("note", note) for note in (*of_model, *of_recipe, *of_data, *names)),
        ("parameters", _parameter_line(recipe, model)),
        ("data", _data_line(recipe, dataset)),
        ("buckets", _bucket_line(recipe, dataset)),
        ("batches", _batch_line(recipe, runtime, dataset)),
        ("length", f"{counted(steps, 'step')}, {dataset.timeline.epochs_in(steps):,.1f} epochs"),
        ("objective", _objective_line(recipe, model)),
        ("update", _update_line(recipe, steps)),
        *(("note", note) for note in worked_out(recipe, steps)),
        ("computing", _computing_line(recipe, launch, runtime, model)),
        ("saving", _saving_line(recipe, runtime, model)),
        *(("note", note) for note in _precision_note(recipe, launch)),
    ]
    head = f"mezzotint {mezzotint.__version__}   run {recipe.run.name} in {folder.path}"
    return [head, *(f"  {title:<10} {text}" for title, text in lines)]


def _model_line(recipe: Recipe) -> str:
    skipped = recipe.model.clip_skip
    skip = f", {counted(skipped, 'last layer')} of its text encoder left out (clip skip)" if skipped else ""
    if recipe.model.weights == "random":
        return (
            f"{recipe.model.family}, configurations from {recipe.model.described_by}; every weight is random, drawn "
            f"from seed {recipe.run.seed}: this model knows nothing yet{skip}"
        )
    return f"{recipe.model.family} from {recipe.model.path}{skip}"


def _parameter_line(recipe: Recipe, model: TrainableModel) -> str:
    lines, parts, adapter = [], model.family.parts(), model.adapter
    own = {} if adapter is None else adapter.numbers
    for part, count in own.items():
        assert adapter is not None
        layers = counted(len(adapter.shapes[part].layers), "layer")
        lines.append(f"{adapter} on {layers} of {part}: {count:,} trained")
    for part, module in parts.items():
        total = sum(p.numel() for p in module.parameters()) - own.get(part, 0)  # of which a process may hold a share
        moving = sum(p.numel() for name, p in module.named_parameters() if f"{part}/{name}" in model.trained)
        lines.append(f"{part} {moving:,} of {total:,} trained" if moving else f"{part} {total:,} frozen")
    cached = (*model.family.text_parts * recipe.data.cache.text, *("vae",) * recipe.data.cache.latents)
    return "; ".join(lines + [f"{part} not loaded (cached)" for part in cached if part not in parts])


def _data_line(recipe: Recipe, dataset: Dataset) -> str:
    own = dataset.catalogue.overrides.flip[dataset.rows]
    low, *_, high = sorted([recipe.data.flip, recipe.data.flip, *own[~np.isnan(own)].tolist()])
    chance = f"{low:g} to {high:g}" if low < high else f"{high:g}"
    flips = f"; mirrored with chance {chance}" if high else ""
    samples = findings.count_samples(
        dataset.catalogue, recipe.data, rows=dataset.rows, held=dataset.held,
        sets={name: len(one.rows) for name, one in dataset.sets.items()},
    )  # fmt: skip
    return f"{samples}; from {', '.join(map(str, recipe.data.path))}{flips}"


def _bucket_line(recipe: Recipe, dataset: Dataset) -> str:
    table, counts = buckets.table(recipe.data), _bucket_counts(recipe, dataset)
    shown = listed([f"{table[i]} ({n:,})" for i, n in counts.most_common()], 6)
    return f"{len(counts)} of {len(table)}: {shown}"


def _bucket_counts(recipe: Recipe, dataset: Dataset) -> Counter[int]:
    return Counter(dataset.catalogue.buckets_of(dataset.rows, recipe.data).tolist())


def _batch_line(recipe: Recipe, runtime: Runtime, dataset: Dataset) -> str:
    data, epoch = recipe.data, dataset.timeline.epoch(0)
    low, rest = divmod(data.batch_size, runtime.world_size)
    each = f"{low} or {low + 1}" if rest else str(low)
    share = f" over {runtime.world_size} processes ({each} each)" if runtime.world_size > 1 else ""
    held = f", at most {recipe.run.micro_batch} at once on a device" if recipe.run.micro_batch else ""
    times = recipe.optim.accumulation
    step = f" × {times} accumulated, {data.batch_size * times} in all" if times > 1 else ""
    of_rest = {
        "short": "smaller batches take what is left of a bucket",
        "fill": f"{counted(epoch.filled, 'visit')} repeated to fill batches",
        "repeat": f"{counted(epoch.filled, 'visit')} repeated to fill batches, which count less",
        "drop": f"{counted(epoch.left_out, 'picture')} left out of an epoch",
    }[data.remainder]
    return (
        f"{counted(data.batch_size, 'sample')}{share}{step} a step{held}; an epoch has "
        f"{counted(epoch.num_batches, 'batch')}, {counted(epoch.num_steps, 'step')}; {of_rest}"
    )


def _objective_line(recipe: Recipe, model: TrainableModel) -> str:
    o, bias, captions = recipe.objective, recipe.objective.timestep_bias, recipe.data.captions
    biased = f"{bias.begin} to {bias.end - 1}" if bias.strategy == "range" else f"{bias.portion:.0%}"
    parts = {
        f"{model.objective.prediction}-prediction, {o.loss}": True,
        "learned-range variance": model.family.learns_variance,
        f"weighted as {o.weighting}": o.weighting != "prediction",
        f"log-normal levels ({o.log_normal[0]:g}, {o.log_normal[1]:g})": o.noise_levels == "log-normal",
        f"Min-SNR γ {o.min_snr_gamma or 0:g} ({o.min_snr_form})": o.min_snr_gamma is not None,
        f"noise offset {o.noise_offset:g} per {o.noise_offset_per}": o.noise_offset,
        f"pyramid noise {o.pyramid_discount:g}": o.pyramid_discount,
        f"embedding perturbation {o.embedding_perturbation:g}": o.embedding_perturbation,
        "zero terminal SNR": o.zero_terminal_snr,
        f"timesteps {o.timesteps[0]} to {o.timesteps[1] - 1}": o.timesteps != (0, 1000),
        f"timestep bias {bias.strategy} ({biased}, {bias.multiplier:g} times as often)": (
            bias.strategy != "none" and bias.multiplier != 1
        ),
        f"caption dropout {captions.dropout:g} ({captions.dropped})": captions.dropout,
    }
    return ", ".join(part for part, is_so in parts.items() if is_so)


def _update_line(recipe: Recipe, steps: int) -> str:
    o = recipe.optim
    apart = {*o.part_lr, *o.part_optimizer, *o.part_schedule}
    parts = [_rule_words(recipe, "", steps)] if apart != set(recipe.model.train) else []
    parts += [f"{part}: {_rule_words(recipe, part, steps)}" for part in recipe.model.train if part in apart]
    if o.clip.norm is not None:
        parts.append(f"clipped at {o.clip.norm:g} ({o.clip.scope})")
    if o.ema.rule != "none":
        started = f" from {o.ema.start}" if o.ema.start is not None else ""
        parts.append(f"average (EMA) {o.ema.rule} {resolve(recipe, steps).ema_decay:g}{started}")
    return ", ".join(parts)


def _rule_words(recipe: Recipe, part: str, steps: int) -> str:
    """How a part moves, or those without settings of their own (""): optimizer, effective peak rate, schedule."""
    o = recipe.optim
    rule = o.part_optimizer.get(part, o.optimizer)
    if not rule.has_rate:
        return rule.label
    schedule = o.part_schedule.get(part, o.schedule)
    warmup, end = lr.span(schedule, steps)
    words = [f"{rule.label}, rate {o.part_lr.get(part, o.lr) * rate_factor(recipe):g}, {schedule.kind}"]
    if schedule.kind not in ("constant", "piecewise") and end != steps:
        words.append(f"decay to step {end:,}")
    if warmup:
        short = " (longer than the run: the rate stays below its peak)" if warmup >= steps else ""
        words.append(f"warm-up {counted(warmup, 'step')}{short}")
    return ", ".join(words)


def worked_out(recipe: Recipe, steps: int) -> list[str]:
    """What settings have led to that depends on others, or that has no influence, in sentences. steps: the run's
    length."""
    o = recipe.optim
    sentences = []
    if recipe.run.whole_epochs and recipe.run.steps:
        sentences.append(
            f"run.whole_epochs ends the run at step {steps:,}, with its last whole epoch; "
            f"{counted(recipe.run.steps - steps, 'step')} of run.steps left out"
        )
    if o.lr_batch_power:
        data = f"({recipe.data.batch_size} × {o.accumulation})"
        sentences.append(
            f"optim.lr_batch_power multiplies every rate by {data}^{o.lr_batch_power:g} = {rate_factor(recipe):.4g}: "
            + ", ".join(f"{part} {o.part_lr.get(part, o.lr) * rate_factor(recipe):.4g}" for part in recipe.model.train)
        )
    if o.ema.strength is not None:
        sentences.append(
            f"optim.ema.strength {o.ema.strength:g} over {steps:,} steps with an update every {o.ema.interval:,}: "
            f"decay {resolve(recipe, steps).ema_decay:.10g}"
        )
    rules = {part: o.part_optimizer.get(part, o.optimizer) for part in recipe.model.train}
    for label in dict.fromkeys(rule.label for rule in rules.values() if not rule.has_rate):
        parts = " and ".join(part for part, rule in rules.items() if rule.label == label)
        sentences.append(f"{label} has no rate: optim.lr and its schedule have no influence on {parts}")
    for part, rule in rules.items():
        path = f"optim.part_lr.{part}" if part in o.part_lr else "optim.lr"
        note = rule.rate_note(o.part_lr.get(part, o.lr), path)
        sentences += [note] if note is not None else []
    return sentences


def _devices(runtime: Runtime, launch: Launch) -> str:
    if runtime.world_size == 1:
        return f"{runtime.device}, 1 process"
    machines = launch.world_size // launch.local_size
    on_each = f" on each of {machines} machines" if machines > 1 else ""
    if runtime.device.type != "cuda":
        return f"{runtime.device}, {runtime.world_size} processes over gloo{on_each}"
    return f"cuda:0 to cuda:{launch.local_size - 1}{on_each}, {runtime.world_size} processes over nccl, one a device"


def _computing_line(recipe: Recipe, launch: Launch, runtime: Runtime, model: TrainableModel) -> str:
    what = "weights" if recipe.run.shard.parameters else "gradients and optimizer state"
    parts = {
        f"{_devices(runtime, launch)}, {model.precision}": True,
        f"{what} shared among {recipe.run.shard.group or runtime.world_size}": runtime.shares,
        f"attention {recipe.model.attention}": True,
        f"{counted(model.recomputed_blocks, 'block')} recomputed": model.recomputed_blocks,
        f"{counted(model.compiled_blocks, 'module')} compiled": model.compiled_blocks,
        "deterministic kernels": recipe.run.deterministic,
    }
    return ", ".join(part for part, is_so in parts.items() if is_so)


def _precision_note(recipe: Recipe, launch: Launch) -> list[str]:
    handed = {"no": "fp32"}.get(launch.mixed_precision or "", launch.mixed_precision)
    if handed is None or handed == recipe.run.precision:
        return []
    return [f"the launcher hands over {handed}; the recipe's run.precision={recipe.run.precision} counts"]


def _saving_line(recipe: Recipe, runtime: Runtime, model: TrainableModel) -> str:
    num_bytes = model.update.checkpoint_bytes(lambda name, held: sharding.whole_shape(name, held, runtime.shares))
    every = "".join(f"every {one}, " for one in recipe.run.save.every)
    kept = f"{recipe.run.save.keep or 'all'} kept{' and the best' if recipe.run.save.best else ''}"
    return f"checkpoints {every}at the end and on signals, {size(num_bytes)} each, {kept}"


def start_line(
    restored: Restored | None, steps: int, changes: Sequence[str], line: str, *, behind: int = 0, longer: str = "",
    again: bool = False,
) -> str:  # fmt: skip
    """Whether the run starts or goes on, and what of it is not bit-exact. behind: steps that lie behind the weights of
    a new run. longer: what would train a run further that is at its end. again: it has started before, and ended before
    its first checkpoint."""
    if restored is None:
        begin = f"going on after step {behind:,}" if behind else "starting at step 0"
        begin = f"the start before this one ended before its first checkpoint; {begin}" if again else begin
        return f"{begin} of {steps:,}; Ctrl-C saves and stops; to go on: {line}"
    if restored.step >= steps:
        return f"{restored.path.name} is the end of this run: nothing is left to train; {longer}"
    exact = f"; not bit-exact from here: {'; '.join(changes)}" if changes else ""
    return f"going on from {restored.path.name}, {counted(steps - restored.step, 'step')} to go{exact}"


def further(reading: Reading, recipe: Recipe, words: Sequence[str], launch: Launch) -> str:
    """What would train a run further that is at its end: the setting, as who wrote it knows it, and a line that is
    about twice as long. words: those behind the verb."""
    path = "run.epochs" if recipe.run.epochs is not None else "run.steps"
    length = recipe.run.epochs or recipe.run.steps or DEFAULT_STEPS
    # the setting counts from the recipe's length, so that a run that is longer already doubles it
    longer = recipe.run.extend
    more, unit = (math.ceil(length), path.removeprefix("run.")) if longer is None else (2 * longer.count, longer.unit)
    number = f"{more:.10g}"  # digits alone, as far as a run can be long: no 1e+06, and none is lost
    settings = [f"run.extend={number} {unit.removesuffix('s') if number == '1' else unit}"]
    source = reading.origin.get(path, "").removeprefix("default of ")
    flag = source if source.startswith("--") or " in " in source else path
    return f"to train it further, raise {flag}, or lay it over the line: {with_settings(words, settings, launch)}"


def allowing(recipe: Recipe, paths: Sequence[str], words: Sequence[str], launch: Launch) -> str:
    """The line of this start with a few more settings that may change. words: those behind the verb."""
    every = dict.fromkeys([*recipe.run.allow_change, *paths])
    return with_settings(words, [f"run.allow_change=[{', '.join(every)}]"], launch)


def at_the_end(folder: RunFolder, recipe: Recipe, exports: Sequence[Path], report: Sequence[Path]) -> list[str]:
    """Where everything lies."""
    words = "new words" if recipe.model.train == (PART,) else "model"
    lines, what = [f"done. {folder.path}"], "adapter" if recipe.model.has_adapter else words
    own = [path for path in exports if path != recipe.run.export.folder]
    averages = [path for path in own if path.stem.endswith("-ema") or "_ema" in path.name]
    if averages and len(averages) < len(own):  # the one to use first
        lines += [f"  {what:13}{path} (the average of the weights, usually the better one)" for path in averages]
        lines += [f"  or           {path} (the weights of the last step)" for path in own if path not in averages]
        lines += [f"  copied to    {path}" for path in exports if path not in own]
    else:
        lines += [f"  {what:13}{path}" for path in exports]
    lines += [f"  report       {path}" for path in report]
    if (folder.samples / "grid.png").exists():
        lines.append(f"  samples      {folder.samples / 'grid.png'}")
    lines.append(f"  checkpoints  {folder.checkpoints}")
    if recipe.run.tensorboard:
        lines.append(f"  curves       tensorboard --logdir {shlex.quote(str(folder.logs))}")
    return [*lines, f"to draw: mezzotint sample {shlex.quote(str(_from_here(folder.path)))} --prompt='…'"]


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Silence(io.StringIO):
    """Where the other processes' words go."""

    def write(self, text: str) -> int:
        return len(text)
