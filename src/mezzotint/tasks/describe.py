"""The description of a run: what it trains, on what data, and how. `check` prints it; `train` prints it before step 1
and records it in the history of the run folder, which `logs/report.txt` and the local page read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from mezzotint.data import findings
from mezzotint.data.buckets import buckets
from mezzotint.data.findings import sets
from mezzotint.data.findings.captions import LostWords
from mezzotint.runtimes.base import Launch
from mezzotint.settings.counting import format_bytes, format_count, format_names
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.optim import part_of_rate
from mezzotint.settings.sections.preserve import PreserveSettings
from mezzotint.tasks import description_notes
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.resolving import rate_factor, resolve
from mezzotint.training import lr
from mezzotint.training.model import TrainableModel

Line = tuple[str, str]
"""A title of one word, and a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What to describe. If the model, the data or the length is None, it could not be read, and its lines are omitted.
    recipe: with all choices made. launch: for the number of processes and machines. model: as it is trained, or on the
    meta device. steps: of the whole run. checkpoint_bytes: of one checkpoint. lost: captions that the text encoder
    truncates."""

    recipe: Recipe
    device: torch.device
    launch: Launch
    model: TrainableModel | None = None
    dataset: Dataset | None = None
    steps: int | None = None
    checkpoint_bytes: int | None = None
    lost: LostWords | None = None


def describe(subject: Subject) -> list[Line]:
    """The run in a dozen lines: model, parameters, data, batches, length, objective, update, hardware, saving."""
    return list(_lines(subject))


def _lines(subject: Subject) -> Iterator[Line]:
    recipe, model, dataset, steps = subject.recipe, subject.model, subject.dataset, subject.steps
    yield "model", _model_line(recipe)
    if model is not None:
        yield "parameters", _parameter_line(recipe, model)
    if dataset is not None:
        yield "data", _data_line(recipe, dataset)
        for one in sets.summarize_sets(dataset.catalogue, dataset.rows, dataset.timeline.columns, recipe.data):
            yield one.name, str(one)
        yield "buckets", _bucket_line(recipe, dataset)
        yield "batches", _batch_line(recipe, dataset, subject.launch.world_size)
        if steps is not None:
            yield "length", f"{format_count(steps, 'step')}, {dataset.timeline.epochs_in(steps):,.1f} epochs"
    if model is not None:
        if recipe.model.under:
            yield "under", _under_line(recipe)
        yield "objective", _objective_line(recipe, model)
    if steps is not None:
        yield "update", _update_line(recipe, steps)
    if model is not None:
        yield "computing", _computing_line(recipe, subject.device, subject.launch, model)
    yield "saving", _saving_line(recipe, subject.checkpoint_bytes)


def notes(subject: Subject) -> list[str]:
    """Sentences about what will run as described but may not be intended, in model, settings and data."""
    recipe, model, dataset = subject.recipe, subject.model, subject.dataset
    sentences: list[str] = []
    if model is not None:
        sentences += model.family.notes
        sentences += model.adapter.notes if model.adapter is not None else ()
        sentences += model.under.notes
        sentences += description_notes.of_clips(recipe, model.family.grid)
    sentences += description_notes.of_settings(
        recipe,
        prediction=model.prediction if model is not None else None,
        device=subject.device.type,
        buckets=len(bucket_counts(recipe, dataset)) if dataset is not None else None,
    )
    if dataset is not None:
        sentences += findings.as_notes(
            findings.of_data(
                dataset.catalogue, recipe.data, rows=dataset.rows, held=dataset.held,
                others=[data_set.catalogue for data_set in dataset.sets.values()], lost=subject.lost,
            )
        )  # fmt: skip
    if model is not None:
        sentences += description_notes.of_patterns(recipe, model.family.parts(), model.trained)
    if subject.steps is not None:
        sentences += description_notes.of_results(recipe, subject.steps)
    return sentences + description_notes.of_launcher(recipe, subject.launch)


def _model_line(recipe: Recipe) -> str:
    skipped = recipe.model.clip_skip
    skip = f", without {format_count(skipped, 'last layer')} of its text encoder (clip skip)" if skipped else ""
    if recipe.model.weights == "random":
        return (
            f"{recipe.model.family}, randomly initialized with seed {recipe.run.seed} from the configurations in "
            f"{recipe.model.config_source}; it has learned nothing yet{skip}"
        )
    return f"{recipe.model.family} from {recipe.model.path}{skip}"


def _under_line(recipe: Recipe) -> str:
    names = ", ".join(f"{one.path.name} (strength {one.strength:g})" for one in recipe.model.under)
    places = "exports" if recipe.sample.under else "exports and previews"
    return f"{names} while training; {places} are without"


def _parameter_line(recipe: Recipe, model: TrainableModel) -> str:
    counts, parts, adapter = [], model.family.parts(), model.adapter
    of_adapter = {} if adapter is None else adapter.numbers
    for part, count in of_adapter.items():
        assert adapter is not None
        layers = format_count(len(adapter.shapes[part].layers), "layer")
        counts.append(f"{adapter} on {layers} of {part}: {count:,} trained")
    media = tuple(part for part in model.family.spec.media_parts if part in model.files.parts)
    cached = {*model.family.text_parts * recipe.data.cache.text, *media * recipe.data.cache.latents}
    for part, module in parts.items():
        if part in cached:
            continue
        total = sum(p.numel() for p in module.parameters()) - of_adapter.get(part, 0)
        trained = sum(p.numel() for name, p in module.named_parameters() if f"{part}/{name}" in model.trained)
        if trained in (0, total):
            counts.append(f"{part} {total:,} {'trained' if trained else 'frozen'}")
        else:
            counts.append(f"{part} {trained:,} of {total:,} trained")
    return "; ".join(counts + [f"{part} not loaded (cached)" for part in sorted(cached)])


def _data_line(recipe: Recipe, dataset: Dataset) -> str:
    overridden = dataset.catalogue.overrides.flip[dataset.rows]
    low, *_, high = sorted([recipe.data.flip, recipe.data.flip, *overridden[~np.isnan(overridden)].tolist()])
    chance = f"{low:g} to {high:g}" if low < high else f"{high:g}"
    flips = f"; flipped with probability {chance}" if high else ""
    samples = findings.count_samples(
        dataset.catalogue, recipe.data, rows=dataset.rows, held=dataset.held,
        sets={name: len(data_set.rows) for name, data_set in dataset.sets.items()},
    )  # fmt: skip
    source = f" in {len(recipe.data.sets)} sets" if recipe.data.sets else f"; from {recipe.data.path}"
    return f"{samples}{_joined_images(recipe, dataset)}{source}{flips}"


def _joined_images(recipe: Recipe, dataset: Dataset) -> str:
    clips, images = recipe.data.clips, dataset.catalogue.joined_images
    if not clips.images:
        return ""
    if images is None:
        return f", each with {format_count(clips.images, 'frame')} of its own as images"
    return f", each with {clips.images} of {format_count(len(images), 'image')} ({clips.images_order})"


def _bucket_line(recipe: Recipe, dataset: Dataset) -> str:
    table, counts = buckets.table(recipe.data), bucket_counts(recipe, dataset)
    return f"{len(counts)} of {len(table)}: " + format_names(
        [f"{table[i]} ({n:,})" for i, n in counts.most_common()], 6
    )


def bucket_counts(recipe: Recipe, dataset: Dataset) -> Counter[int]:
    """The number of samples in each bucket with samples, by the bucket's index in the table."""
    return Counter(dataset.catalogue.buckets_of(dataset.rows, recipe.data).bucket.tolist())


def _batch_line(recipe: Recipe, dataset: Dataset, processes: int) -> str:
    data, epoch = recipe.data, dataset.timeline.epoch(0)
    sizes = sorted({one.settings.batch_size for one in data.image_sets()})
    shares = {part for size in sizes for part in (size // processes, -(-size // processes))}
    per_step = " or ".join(str(part) for part in sorted(shares))
    samples = format_count(sizes[0], "sample") if len(sizes) == 1 else f"{' or '.join(map(str, sizes))} samples"
    share = f" over {processes} processes ({per_step} each)" if processes > 1 else ""
    micro_batch = f", in micro-batches of at most {recipe.run.micro_batch}" if recipe.run.micro_batch else ""
    times = recipe.optim.accumulation
    total = f" = {sizes[0] * times}" if len(sizes) == 1 else ""
    step = f" × {times} accumulated{total}" if times > 1 else ""
    of_rest = {
        "short": "a batch with too few samples is smaller",
        "fill": f"{format_count(epoch.filled, 'visit')} repeated to fill batches",
        "repeat": f"{format_count(epoch.filled, 'visit')} repeated to fill batches, with less weight",
        "drop": f"{format_count(epoch.left_out, 'sample')} left out" if epoch.left_out else "no sample is left out",
    }[data.remainder]
    return (
        f"{samples}{share}{step} a step{micro_batch}; an epoch has "
        f"{format_count(epoch.num_batches, 'batch')}, {format_count(epoch.num_steps, 'step')}; {of_rest}"
    )


def _objective_line(recipe: Recipe, model: TrainableModel) -> str:
    o, bias, captions = recipe.objective, recipe.objective.timestep_bias, recipe.data.captions
    biased = f"{bias.begin} to {bias.end - 1}" if bias.strategy == "range" else f"{bias.portion:.0%}"
    parts = {
        f"{model.objective.prediction}-prediction, {o.loss}": True,
        "learned-range variance": model.family.learns_variance,
        f"weighting {o.weighting}": o.weighting != "prediction",
        f"log-normal noise levels ({o.log_normal[0]:g}, {o.log_normal[1]:g})": o.noise_levels == "log-normal",
        f"Min-SNR γ {o.min_snr_gamma or 0:g} ({o.min_snr_form})": o.min_snr_gamma is not None,
        f"noise offset {_offset_text(o)} per {o.noise_offset_per}": o.noise_offset or o.noise_offset_adaptive_scale,
        f"pyramid noise {o.pyramid_discount:g}": o.pyramid_discount,
        f"embedding perturbation {o.embedding_perturbation:g}": o.embedding_perturbation,
        "zero terminal SNR": o.zero_terminal_snr,
        f"timesteps {o.timesteps[0]} to {o.timesteps[1] - 1}": o.timesteps != (0, 1000),
        f"timestep bias {bias.strategy} ({biased}, {bias.multiplier:g} times as often)": (
            bias.strategy != "none" and bias.multiplier != 1
        ),
        f"caption dropout {captions.dropout:g} ({captions.dropped})": captions.dropout,
        f"preserve {' or '.join(o.preserve.kind)}{_preserve_cost(o.preserve)}": o.preserve.is_on,
    }
    return ", ".join(part for part, applies in parts.items() if applies)


def _preserve_cost(preserve: PreserveSettings) -> str:
    """The cost in passes; a pass with gradients is about three passes without."""
    if preserve.adds_pass:
        return f" (weight {preserve.weight:g}; a step takes about 7/3 of the denoiser's computation)"
    return " (a step takes about 4/3 of the denoiser's computation)"


def _offset_text(o: ObjectiveSettings) -> str:
    strength = f"{'up to ' if o.noise_offset_random_strength else ''}{o.noise_offset:g}"
    scale = o.noise_offset_adaptive_scale
    return f"{strength} {'+' if scale > 0 else '−'} {abs(scale):g} · |mean|" if scale else strength


def _update_line(recipe: Recipe, steps: int) -> str:
    o = recipe.optim
    with_own_settings = {*map(part_of_rate, o.part_lr), *o.part_optimizer, *o.part_schedule}
    parts = [_describe_rule(recipe, "", steps)] if with_own_settings != set(recipe.model.train) else []
    parts += [
        f"{part}: {_describe_rule(recipe, part, steps)}" for part in recipe.model.train if part in with_own_settings
    ]
    if o.clip.norm is not None:
        parts.append(f"gradient norm clipped at {o.clip.norm:g} ({o.clip.scope})")
    if o.stochastic_rounding:
        parts.append("stochastic rounding")
    if o.ema.rule != "none":
        start = f" from {o.ema.start}" if o.ema.start is not None else ""
        parts.append(f"EMA {o.ema.rule} {resolve(recipe, steps).ema_decay:g}{start}")
    return ", ".join(parts)


def _describe_rule(recipe: Recipe, part: str, steps: int) -> str:
    """Optimizer, effective peak learning rate and schedule of a part, or of all parts without separate settings
    ("")."""
    o = recipe.optim
    rule = o.part_optimizer.get(part, o.optimizer)
    if not rule.has_rate:
        return rule.label
    schedule = o.part_schedule.get(part, o.schedule)
    warmup, end = lr.resolve_span(schedule, steps)
    texts = [f"{rule.label}, learning rate {_describe_rates(recipe, part)}, {schedule.kind}"]
    if schedule.kind not in ("constant", "inverse-sqrt", "piecewise") and end != steps:
        texts.append(f"decay to step {end:,}")
    if warmup:
        short = " (longer than the run: the learning rate stays below its peak)" if warmup >= steps else ""
        texts.append(f"{format_count(warmup, 'warmup step')}{short}")
    return ", ".join(texts)


def _describe_rates(recipe: Recipe, part: str) -> str:
    """The effective peak rate of a part, and those of its name patterns."""
    o, factor = recipe.optim, rate_factor(recipe)
    keys_by_rate: dict[float, list[str]] = {}
    for key in o.rate_patterns(part):
        keys_by_rate.setdefault(o.rate_of(key), []).append(key)
    texts = [
        f"{rate * factor:g} for {format_names(keys, 4)}" if rate else f"frozen: {format_names(keys, 4)}"
        for rate, keys in keys_by_rate.items()
    ]
    if (ratio := recipe.model.adapter.b_lr_ratio) != 1:
        texts.append(f"times {ratio:g} for the second factors of the adapter")
    base = f"{o.rate_of(part) * factor:g}"
    return f"{base} ({'; '.join(texts)})" if texts else base


def _computing_line(recipe: Recipe, device: torch.device, launch: Launch, model: TrainableModel) -> str:
    run, processes = recipe.run, launch.world_size
    sharded = "weights" if run.shard.parameters else "gradients and optimizer state"
    parts = {
        f"{_devices(device, launch)}, {model.precision}": True,
        f"{sharded} sharded over {run.shard.group or processes}": run.runtime == "fsdp",
        f"attention {recipe.model.attention}": True,
        f"{format_count(model.recomputed_blocks, 'block')} recomputed": model.recomputed_blocks,
        f"{format_count(model.compiled_blocks, 'module')} compiled": model.compiled_blocks,
        "deterministic kernels": run.deterministic,
    }
    return ", ".join(part for part, applies in parts.items() if applies)


def _devices(device: torch.device, launch: Launch) -> str:
    if launch.world_size == 1:
        return f"{device}, 1 process"
    machines = launch.world_size // launch.local_size
    on_each = f" on each of {machines} machines" if machines > 1 else ""
    if device.type != "cuda":
        return f"{device}, {launch.world_size} processes over gloo{on_each}"
    return f"cuda:0 to cuda:{launch.local_size - 1}{on_each}, {launch.world_size} processes over nccl, one a device"


def _saving_line(recipe: Recipe, checkpoint_bytes: int | None) -> str:
    every = "".join(f"every {interval}, " for interval in recipe.run.save.every)
    num_kept = f"{recipe.run.save.keep or 'all'} kept{' and the best' if recipe.run.save.best else ''}"
    size = f"{format_bytes(checkpoint_bytes)} each, " if checkpoint_bytes is not None else ""
    return f"checkpoints {every}at the end and on signals, {size}{num_kept}"
