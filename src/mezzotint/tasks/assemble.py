"""Builds the objects of a run from a recipe. The only module where sections meet; each object gets its section and
plain values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from mezzotint import registry
from mezzotint.adapters import files as adapter_files
from mezzotint.adapters import under as adapters_under
from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.data.buckets import buckets
from mezzotint.data.cache import carried
from mezzotint.data.cache.entries import OF_FILES, LatentCache, TextCache, is_cache
from mezzotint.data.cache.entries import Caches as Caches
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue import requirements, sharing
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.formats.base import format_of
from mezzotint.data.loading.loader import Loader, RankShare
from mezzotint.data.loading.prefetch import Prefetched, steps_ahead
from mezzotint.data.media import decoding
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.data.schedule.plan import Timeline
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.diffusion.masking import LossMask
from mezzotint.errors import DatasetError, OutOfMemory, RecipeError
from mezzotint.families.base import Encodes, Grid, ModelFamily
from mezzotint.runtimes.base import Runtime, compile_blocks, raise_compile_error, recompute_blocks, set_memory_format
from mezzotint.runtimes.shared.offload import Offload
from mezzotint.settings.base import with_values
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import Resolved
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.holdout import HoldoutSettings
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.settings.sections.subjects import PriorSettings
from mezzotint.settings.sections.tokens import PART
from mezzotint.tasks import base_models, holding, selection
from mezzotint.training import rates
from mezzotint.training.callbacks.base import Callback
from mezzotint.training.loop import RunHost, Trainer
from mezzotint.training.model import TrainableModel
from mezzotint.training.optimizers import weight_decay
from mezzotint.training.precision import mixed
from mezzotint.training.precision.policy import DTYPES, LossScale, Precision, cast, cast_parameters, set_gradient_dtype
from mezzotint.training.progress import Progress
from mezzotint.training.trainable import UpdateCheck
from mezzotint.training.update import Update
from mezzotint.training.whole_batches import resolve_padded_size
from mezzotint.weights.files import fingerprint, learned_tokens
from mezzotint.weights.folder.state import EmptyOnMeta
from mezzotint.weights.model_files import EncodedSpec, ModelFiles

Parameters = dict[str, nn.Parameter]


@contextmanager
def translate_shortage(problem: str, remedy: str) -> Iterator[None]:
    """Context that turns a device's out-of-memory errors, and failures of torch's compiler, into errors of ours. Raises
    OutOfMemory E1751: what, torch's message, and what to do; RecipeError E1094."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"{problem} ({str(error).splitlines()[0]}); {remedy}", code="E1751") from error
    except RuntimeError as error:
        raise_compile_error(error)
        raise


def parts_from_folder(files: ModelFiles) -> tuple[str, ...]:
    """The parts of a model's folder that a run may depend on and a checkpoint does not contain."""
    denoisers = files.spec.denoisers(files.parts)
    media = (part for part in files.spec.media_parts if part in files.parts)
    return (*denoisers, *files.spec.text_parts, *media, "schedule", "tokenizer")


@dataclass(frozen=True, slots=True)
class HeldSet:
    """Images of a separate folder that are measured and never trained. settings: the data set's, with this folder."""

    catalogue: Catalogue
    rows: NDArray[np.int32]
    settings: DataSettings


@dataclass(frozen=True, slots=True)
class Dataset:
    """The data of a run. rows: trained; held: kept for measuring. timeline: which batches make which step. sets:
    further images to be measured, by name."""

    catalogue: Catalogue
    rows: NDArray[np.int32]
    held: NDArray[np.int32]
    timeline: Timeline
    sets: Mapping[str, HeldSet] = field(default_factory=dict)


def family_class(recipe: Recipe) -> type[ModelFamily]:
    """The class of `model.family`. Raises RecipeError E1010 with the nearest name."""
    family: type[ModelFamily] = registry.find("families", recipe.model.family).Family
    return family


def open_files(recipe: Recipe) -> ModelFiles:
    """Opens the model's files, reading only headers; once a run. Raises RecipeError E1010, WeightsError."""
    return family_class(recipe).files.of(recipe.model, recipe.run.seed)


def open_dataset(recipe: Recipe, runtime: Runtime, progress: Callable[[int, int], None] | None = None) -> Dataset:
    """Lists, checks and indexes the images; the first process does the work, the others wait for it. Raises RecipeError
    E1020 without data.path, E1293 without OpenCV if it resizes, E1474 for a learned token that is in no caption;
    DatasetError for errors in the data, E1110 for a cache folder, E1475 without masks."""
    if not (recipe.data.path or recipe.data.sets):
        raise RecipeError("data.path is not set; write data.path=FOLDER, a folder of images", code="E1020")
    decoding.require_packages(resize=recipe.data.resize, antialias=recipe.data.antialias)
    try:
        catalogue = _index(recipe, recipe.data, runtime, progress)
    except DatasetError as error:
        refuse_cache(recipe, error)
        raise
    requirements.require_masks(catalogue, recipe.data)
    rows, held = catalogue.split(recipe.data.holdout, recipe.run.seed, at_most=recipe.data.max_samples)
    if PART in recipe.model.train:
        requirements.require_learned_tokens(catalogue, rows, recipe.model.tokens.all)
    columns = plan_columns(catalogue, rows, recipe.data)
    timeline = Timeline(columns, recipe.data, recipe.optim.accumulation, recipe.run.seed)
    named = recipe.data.holdout.path if recipe.run.validation.every is not None else {}
    sets = {name: _held_set(recipe, name, path, runtime, progress) for name, path in named.items()}
    return Dataset(catalogue, rows, held, timeline, sets)


def refuse_cache(recipe: Recipe, error: DatasetError) -> None:
    """Replaces an error about missing images with DatasetError E1110 if a folder of the recipe is a cache of
    Mezzotint."""
    named = [path for path in recipe.data.paths if is_cache(path)] if error.code in ("E1202", "E1210") else []
    if named:
        raise DatasetError(
            f"data.path: {named[0]} is a cache of Mezzotint and contains no images; set data.path to the folder of the "
            f"images, and data.cache.path={named[0]} for the cache",
            code="E1110",
        ) from error


def _index(
    recipe: Recipe, settings: DataSettings, runtime: Runtime, progress: Callable[[int, int], None] | None
) -> Catalogue:
    index = cache_folder(recipe) / "catalogues"
    if runtime.is_first:
        catalogue = catalogues.build(settings, index, progress=progress)
    runtime.barrier()
    address = runtime.share(sharing.to_address(catalogue) if runtime.is_first else "")
    if not runtime.is_first:
        catalogue = sharing.at_address(address, settings) or catalogues.build(settings, index)
    _require_same_data(runtime, catalogue)
    return catalogue


def _held_set(
    recipe: Recipe, name: str, path: Path, runtime: Runtime, progress: Callable[[int, int], None] | None
) -> HeldSet:
    settings = with_values(
        recipe.data, {"path": path, "sets": (), "repeats": 1.0, "prior": PriorSettings(), "mask.path": None}
    )
    try:
        catalogue = _index(recipe, settings, runtime, progress)
    except DatasetError as error:
        raise DatasetError(f"data.holdout.path, set {name}: {error.message}", code=error.code) from error
    rows = catalogue.split(HoldoutSettings(), recipe.run.seed, at_most=recipe.data.holdout.max_samples)[0]
    return HeldSet(catalogue, rows, settings)


def _require_same_data(runtime: Runtime, catalogue: Catalogue) -> None:
    """Requires the same data on all processes; otherwise their batches would differ. Raises DatasetError E1209."""
    if runtime.share(catalogue.fingerprint) != catalogue.fingerprint:
        raise DatasetError(
            f"process {runtime.rank} sees other images, captions or repeats than the first process; wait until "
            "nothing writes into data.path any more and all machines have the same data, then start again",
            code="E1209",
        )


def cache_folder(recipe: Recipe) -> Path:
    """The folder of caches and indexes on this machine."""
    return carried.local_folder(recipe.data.cache.path)


def identities(recipe: Recipe, files: ModelFiles, parts: Collection[str]) -> dict[str, str]:
    """The fingerprints of the frozen parts, including those frozen in part (with an adapter, `model.freeze` or
    `model.last_layers`); and of the file that an adapter starts from, and of the adapters under the run."""
    in_part = recipe.model.freeze or recipe.model.last_layers is not None or recipe.model.has_adapter
    frozen = [part for part in parts if part not in recipe.model.train or in_part]
    start = recipe.model.adapter.path
    files_of_adapter = () if start is None else adapter_files.files_at(start)
    keys = ("adapter", "adapter 2")
    of_files = {key: fingerprint.of_file(file) for key, file in zip(keys, files_of_adapter, strict=False)}
    of_files |= {
        f"word {token}": learned_tokens.fingerprint_of(path) for token, path in recipe.model.tokens.files.items()
    }
    of_files |= adapters_under.fingerprints(recipe.model.under)
    return {part: files.fingerprint(part) for part in sorted(frozen)} | of_files


def open_caches(recipe: Recipe, files: ModelFiles) -> Caches:
    """The caches of the recipe, as they are on disk now."""
    folder, seed = cache_folder(recipe), recipe.run.seed
    precision = Precision.of(recipe.run)
    names = {dtype: name for name, dtype in DTYPES.items()}
    latents = text = None
    if recipe.data.cache.latents:
        identity = files.media_identity()
        latents = LatentCache(folder, recipe.data, identity=identity, compute=names[precision.vae], seed=seed)
    if recipe.data.cache.text:
        identity = OF_FILES if only_texts_of_files(recipe) else files.text_identity()
        compute = precision.low_bit or names[precision.frozen]
        text = TextCache(
            folder, recipe.data, identity=identity, compute=compute, images=files.text_images,
            preserved=base_models.list_captions(recipe),
        )  # fmt: skip
        text.expected_shape = files.text_shape()
    return Caches(latents, text, files.text_images)


def only_texts_of_files(recipe: Recipe) -> bool:
    """Whether every embedding of the run comes from files of another trainer, and no text encoder is needed: no caption
    is dropped, nothing is sampled."""
    is_other = recipe.data.drops_captions or recipe.run.generates
    if recipe.data.clips.images_from == "images":
        joined_images = catalogues.joined_images_settings(recipe.data)
        is_other |= not format_spec(joined_images.format).reads_texts(joined_images)
    return format_spec(recipe.data.format).reads_texts(recipe.data) and not is_other


def encoders(recipe: Recipe, files: ModelFiles, device: torch.device) -> Callable[[Encodes], ModelFamily]:
    """The loader of the parts that a cache needs: frozen, on the device, in the type of frozen parts."""
    precision = Precision.of(recipe.run)

    def load(encodes: Encodes) -> ModelFamily:
        parts = files.spec.text_parts if encodes == "text" else files.spec.media_parts
        layer_streamer = holding.streamed_encoders(recipe, files, device) if encodes == "text" else None
        forms = {part: replace(precision.form_of(part), device=device, layer_streamer=layer_streamer) for part in parts}
        family = family_class(recipe).load(files, parts, forms)
        family.layer_streamer = layer_streamer
        refuse_unfit(recipe, family.grid)
        holding.freeze(family, recipe, precision, device)
        return family

    return load


def encoded_spec(recipe: Recipe, files: ModelFiles) -> EncodedSpec | None:
    """What the model reads of a data set encoded by another trainer; None for other data sets and families."""
    return files.encoded_spec() if format_of(recipe.data.format).is_encoded else None


def needed_parts(recipe: Recipe) -> tuple[str, ...]:
    """The parts that training computes with: cached parts are not loaded."""
    spec = family_spec(recipe.model.family)
    texts = () if recipe.data.cache.text else spec.text_parts
    denoisers = spec.denoisers(None if recipe.run.generates else recipe.model.train)
    return (*denoisers, *texts, *(() if recipe.data.cache.latents else spec.media_parts))


def refuse_empty_shares(recipe: Recipe, processes: int) -> None:
    """Raises RecipeError E1803 for a batch with fewer samples than processes."""
    if recipe.data.smallest_batch < processes:
        raise RecipeError(
            f"data.batch_size is {recipe.data.smallest_batch}, too few for {processes} processes; write "
            f"data.batch_size={processes} or more, or start fewer",
            code="E1803",
        )


def refuse_unfit(recipe: Recipe, grid: Grid) -> None:
    """Raises RecipeError E1292 for clips with an image model, E1464 for sizes that the model does not support. grid: of
    the model's latents."""
    if recipe.data.has_clips and grid.frames == 1:
        raise RecipeError(
            f"model.family={recipe.model.family} trains images, but data.format={recipe.data.format} contains clips; "
            "use a video model, or a data.format of images",
            code="E1292",
        )
    for size in buckets.table(recipe.data):
        if reason := grid.refusal(size, clips=recipe.data.has_clips):
            raise RecipeError(reason, code="E1464")


def frames_to_generate(recipe: Recipe, grid: Grid, default: int = 1) -> int:
    """The number of frames of a generated clip; 1 is an image. default: the model's default, for sampling from a model
    without a run. Raises RecipeError E1464 for a clip of an image model."""
    frames = recipe.sample.clip.frames
    if grid.frames == 1:
        if frames is not None and frames > 1:
            raise RecipeError(
                f"sample.clip.frames is {frames}, but model.family={recipe.model.family} generates images; remove it",
                code="E1464",
            )
        return 1
    return frames or (recipe.data.clips.frames if recipe.data.has_clips else default)


def open_model(
    resolved: Resolved, files: ModelFiles, runtime: Runtime, *, parts: Collection[str] | None = None
) -> TrainableModel:
    """Loads, freezes, casts, wraps and places the model; creates objective, update and loss scale. The order of the
    steps matters: each comment gives its reason.

    parts: to load; None loads those that training computes with.
    """
    recipe = resolved.recipe
    holding.refuse_in_backward(recipe, runtime.world_size)
    precision = Precision.of(recipe.run, resolved.gradient_sums)
    # 1. Load each part in its final type and onto its final device, to avoid a second copy.
    family = _load(resolved, files, runtime, needed_parts(recipe) if parts is None else parts)
    under = adapters_under.put_under(recipe.model.under, files, family.parts())
    copy = base_models.open_frozen_copy(recipe, files, family, runtime, precision)
    # 2. Choose what is trained before any cast: learned tokens, and adapters from weights, start from the file.
    trained, adapter = selection.select_trained(recipe, files, family, values=runtime.has_values)
    # 3. Cast what is frozen, before blocks are wrapped or offloaded.
    cast_frozen(recipe, family, trained, precision)
    optim = optimizer_settings(recipe, family, trained)
    # 4. Set up attention, precision, compiling and recompute, before offload and runtime wrap the blocks again.
    blocks, recomputed, compiled = _arrange(recipe, family, precision, runtime)
    # 5. Without masters, cast trained weights before the update takes them.
    if precision.has_no_masters:
        holding.refuse_sharded(runtime)
        cast_trained(recipe, family, trained, precision.weights)
    # 6. Offload blocks before anything is placed: they never fit on the device all at once.
    offload = _offload(resolved, runtime, family, blocks, trained, precision)
    # 7. Place the parts. From here on `trained` is what this process updates, possibly only rows.
    trained = dict(runtime.prepare(family.parts(), trained, blocks, precision.weights))
    # 8. Create the update, which copies float32 masters while the weights have the file's full precision.
    update = _open_update(resolved, runtime, trained, optim, adapter, offload, precision)
    # 9. With masters, cast the weights that the passes compute with, after the masters were copied.
    if precision.separate_masters and not runtime.holds_masters:
        cast_trained(recipe, family, trained, precision.weights)
    # 10. Set up offload and gradient sums, which depend on the types that the weights have now.
    if offload is not None:
        offload.settle()
    if not runtime.holds_masters and precision.gradients != precision.weights:
        set_gradient_dtype(trained.values(), precision.gradients)
    prediction = recipe.model.prediction or family.prediction
    base = base_models.open_base(recipe, family, copy, adapter)
    return TrainableModel(
        family, files, trained, objective_of(recipe.objective, family.schedule, prediction).to(runtime.device),
        prediction, precision, optim, update, LossScale(recipe.run.scaler, precision, runtime.device),
        attention=recipe.model.attention, recomputed_blocks=recomputed, compiled_blocks=compiled, adapter=adapter,
        under=under, base=base, preservation=base_models.open_preservation(recipe, family, base),
        loss_mask=LossMask(recipe.data.mask.background, recipe.data.mask.mean == "mask"),
        records_graphs=recipe.run.kernels.cuda_graphs and runtime.device.type == "cuda",
    )  # fmt: skip


def _load(resolved: Resolved, files: ModelFiles, runtime: Runtime, parts: Collection[str]) -> ModelFamily:
    recipe = resolved.recipe
    forms = holding.resolve_read_forms(recipe, parts, runtime.device, resolved.blocks_on_device)
    with nullcontext() if runtime.has_values else EmptyOnMeta():
        family = family_class(recipe).load(files, parts, forms)
    refuse_unfit(recipe, family.grid)
    return family


def _offload(
    resolved: Resolved, runtime: Runtime, family: ModelFamily, blocks: list[tuple[nn.Module, ...]],
    trained: Parameters, precision: Precision,
) -> Offload | None:  # fmt: skip
    offload = holding.offload_of(resolved.recipe, runtime, resolved.blocks_on_device)
    if offload is not None:
        moves = holding.trains_offloaded(resolved.recipe, resolved.blocks_on_device)
        offload.take(family.parts(), blocks, trained, precision.weights if moves else None)
    return offload


def _open_update(
    resolved: Resolved, runtime: Runtime, trained: Parameters, optim: OptimSettings,
    adapter: TrainedAdapter | None, offload: Offload | None, precision: Precision,
) -> Update:  # fmt: skip
    hooks: dict[str, Any] = {"written": runtime.refresh_copies if offload is None else offload.refresh_copies}
    hooks |= {"moved": adapter.shorten} if adapter is not None else {}
    if offload is not None and holding.trains_offloaded(resolved.recipe, resolved.blocks_on_device):
        hooks["when_arrived"] = offload.when_arrived
    return Update(
        trained,
        optim,
        ema_decay=resolved.ema_decay,
        separate_masters=precision.separate_masters and not runtime.holds_masters,
        gradients=None if runtime.holds_masters else precision.gradients,
        rate_keys=rates.find_keys(rates.names_to_match(trained, adapter.shapes if adapter else ()), optim),
        rate_factors=adapter.rate_factors(trained) if adapter else {},
        seed=resolved.recipe.run.seed,
        **hooks,
    )


def _arrange(
    recipe: Recipe, family: ModelFamily, precision: Precision, runtime: Runtime
) -> tuple[list[tuple[nn.Module, ...]], int, int]:
    """Attention, layout and precision of the networks; their blocks, and how many are recomputed and compiled."""
    holding.arrange_denoisers(family, recipe, precision)
    blocks = list(family.blocks())
    mixed.arrange([family.parts()[name] for name in recipe.model.train], recipe.run, precision)
    set_memory_format(family.parts().values(), recipe.run, runtime.device)
    compiled = compile_blocks(blocks, recipe.run)
    return (
        blocks,
        recompute_blocks(blocks, recipe.run.gradient_checkpointing) if recipe.run.gradient_checkpointing.enabled else 0,
        compiled,
    )


def cast_frozen(recipe: Recipe, family: ModelFamily, trained: Mapping[str, nn.Parameter], precision: Precision) -> None:
    """Casts frozen parts, and the model below an adapter, to their final types."""
    for name, module in family.parts().items():
        if name not in recipe.model.train or recipe.model.has_adapter:
            cast(module, precision.of_frozen(name), exclude=[*trained.values(), *precision.fp32_tensors(module)])


def optimizer_settings(recipe: Recipe, family: ModelFamily, trained: Collection[str]) -> OptimSettings:
    """`optim` with the parameters excluded from weight decay. trained: names of parameters."""
    optim = weight_decay.of_adapter(recipe.optim) if recipe.model.has_adapter else recipe.optim
    return weight_decay.resolve_no_decay(optim, family.parts(), list(trained))


def cast_trained(recipe: Recipe, family: ModelFamily, trained: Mapping[str, nn.Parameter], dtype: torch.dtype) -> None:
    """Casts trained parts to a type; with an adapter, only its weights."""
    if recipe.model.has_adapter:
        cast_parameters(trained, dtype)
        return
    for part in recipe.model.train:
        cast(family.parts()[part], dtype)


@contextmanager
def open_trainer(
    resolved: Resolved,
    runtime: Runtime,
    dataset: Dataset,
    caches: Caches,
    model: TrainableModel,
    *,
    progress: Progress | None = None,
    host: RunHost[Trainer] | None = None,
    callbacks: Sequence[Callback] = (),
    world_size: int | None = None,
    update_check: UpdateCheck | None = None,
) -> Iterator[Trainer]:
    """The trainer of a run, a dry run or a benchmark, with its loader, which is closed at the end of the `with` block.
    progress: where it starts, if not at step 0. world_size: processes that share the batches, if not the runtime's."""
    recipe, progress = resolved.recipe, progress or Progress(last_step=resolved.steps)
    loader = Loader(
        dataset.catalogue,
        dataset.rows,
        recipe.data,
        dataset.timeline,
        range(progress.step, resolved.steps),
        share=RankShare(
            runtime.rank, world_size or runtime.world_size, recipe.run.micro_batch, pad_empty_ranks=bool(runtime.shares)
        ),
        device=runtime.device,
        caches=caches,
        preserved=base_models.list_captions(recipe),
    )
    with ExitStack() as stack:
        stack.callback(loader.close)
        prefetched = None
        if ahead := steps_ahead(recipe.run.device_prefetch, runtime.device, is_cached=caches.latents is not None):
            prefetched = Prefetched(loader, ahead=ahead, device=runtime.device, begin=loader.start)
            stack.callback(prefetched.close)
        yield Trainer(
            model,
            prefetched or loader,
            runtime,
            host or RunHost(),
            progress,
            callbacks,
            seed=resolved.seed,
            rate_factor=resolved.rate_factor,
            max_nonfinite_steps=recipe.run.max_nonfinite_steps,
            update_check=update_check,
            pad_to=resolve_padded_size(recipe.run, recipe.data.largest_batch, world_size or runtime.world_size),
        )
