"""How much memory a run takes, computed from the model's configurations without allocating it.

The model is opened as in a run, on the meta device, and gets fake tensors, which have shape, type and device but no
values. The real code runs on them: the forward pass up to the loss, with the run's autocast, attention and recompute.
What autograd saves of that pass is counted storage by storage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from mezzotint.data.cache.text_rows import layout_of
from mezzotint.families.base import Grid, ModelFamily
from mezzotint.runtimes.base import Launch, Runtime, blocks_to_recompute, recompute_blocks
from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import blocks_on_device, gradient_sums
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.run import GradientSums
from mezzotint.shapes import Size, latent_size
from mezzotint.stages import Noised, TextEmbedding
from mezzotint.tasks.assemble import family_class, needed_parts, only_texts_of_files, open_model
from mezzotint.tasks.check._fakes import WithoutPinning, give_fakes
from mezzotint.tasks.check._saved_bytes import SavedBytes
from mezzotint.tasks.holding import forms_of_frozen, trains_offloaded
from mezzotint.tasks.resolving import resolve
from mezzotint.training.checkpoints.background_save import is_asynchronous
from mezzotint.training.model import TrainableModel
from mezzotint.training.precision import attention
from mezzotint.training.precision.policy import DTYPES, Precision
from mezzotint.training.whole_batches import resolve_padded_size
from mezzotint.weights import low_bit
from mezzotint.weights.folder.state import EmptyOnMeta
from mezzotint.weights.model_files import ModelFiles


@dataclass(frozen=True, slots=True)
class PartMemory:
    """A part of the model. parameters, trained: number of weights. bytes: in memory during training, including buffers.
    loaded: whether training computes with it (cached parts are not loaded)."""

    name: str
    parameters: int
    trained: int
    bytes: int
    loaded: bool


@dataclass(frozen=True, slots=True)
class Activations:
    """What a forward pass saves for the backward pass. samples: of one micro-batch. kept: bytes, including casts of
    weights under autocast, excluding parameters. again: bytes of the largest recomputed block, which the backward pass
    needs on top; 0 without recompute. with_gradients: the peak of both and gradients in a backward pass that starts
    without gradients: they are allocated while activations are freed."""

    samples: int
    kept: int
    again: int
    with_gradients: int

    @property
    def bytes(self) -> int:
        """Both together: what must fit in addition to the weights."""
        return self.kept + self.again


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the device of one process, and on disk. weights: of all loaded parts. masters: float32 copies of weights
    in a smaller type. ema_is_apart: the EMA is in host memory. activations: of the buckets that may need most. update:
    temporary tensors of the optimizer step, when activations are freed. loading: the peak before the first pass.
    checkpoint: of one. copy: of host memory while a checkpoint is written and training continues; 0 if training waits.
    text_numbers: values that a cache stores for a caption."""

    parts: tuple[PartMemory, ...]
    weights: int
    masters: int
    gradients: int
    optimizer: int
    ema: int
    ema_is_apart: bool
    update: int
    loading: int
    checkpoint: int
    copy: int
    activations: Mapping[Size, Activations]
    grid: Grid
    text_numbers: int
    adapter: str = ""
    """The adapter that is trained instead of the parts' weights, as text."""
    on_host: int = 0
    """Bytes of host memory that `run.offload` takes: blocks, and everything else that is not on the device."""
    update_is_apart: bool = False
    """Whether masters, gradients, optimizer states and the update are in host memory."""
    blocks: tuple[int, ...] = ()
    """Bytes of the denoiser's blocks, without an adapter on them."""
    keeps_gradients: bool = True
    """Whether all gradients are allocated during the forward pass: with several micro-batches a step, and with several
    processes, whose buckets stay. Otherwise they are allocated while activations are freed."""

    @property
    def worst(self) -> int:
        """Activations of the bucket that needs most."""
        return max((a.bytes for a in self.activations.values()), default=0)

    @property
    def held_on_host(self) -> int:
        """Host memory during training: what is offloaded, and an EMA on the CPU."""
        return self.on_host + (self.ema if self.ema_is_apart and not self.update_is_apart else 0)

    @property
    def steady(self) -> int:
        """What is on the device all the time."""
        if self.update_is_apart:
            return self.weights
        average = 0 if self.ema_is_apart else self.ema
        return self.weights + self.masters + self.gradients + self.optimizer + average

    @property
    def step(self) -> int:
        """A step's peak, of its passes or of its update."""
        if self.update_is_apart:  # a gradient stays until it is sent
            return self.steady + self.worst + max(self.blocks)
        passes = max((a.with_gradients for a in self.activations.values()), default=0)
        if self.keeps_gradients:
            passes = self.gradients + self.worst
        return self.steady - self.gradients + max(passes, self.gradients + self.update)

    @property
    def peak(self) -> int:
        """The estimate of the run's peak, of a step or of loading. Not included: workspaces of kernels, prefetched
        batches, frozen encoders while they run, previews, communication buffers, and fragmentation."""
        return max(self.step, self.loading)


def memory_of(outline: MetaModel, batches: Mapping[Size, int], *, processes: int = 1) -> Memory:
    """The memory of one of so many processes of a run. batches: the largest batch of each bucket, in samples over all
    processes."""
    recipe, update = outline.recipe, outline.update
    by_kind = _bytes_by_kind(update.tensors())
    trained = {name: p.numel() for name, p in outline.trained.items()}
    parts = tuple(_part(outline, name, trained) for name in outline.family.parts())
    share = count_sharing_processes(recipe, processes)
    moved = sum(part.bytes for part in parts if part.name in recipe.model.train)
    samples = count_samples(recipe, batches, processes=processes)
    memory = Memory(
        parts=parts,
        weights=sum(part.bytes for part in parts if part.loaded) - moved + _weights_in_use(outline, moved, share),
        masters=by_kind["w"] // share if outline.precision.separate_masters or share > 1 else 0,
        gradients=_bytes_of_gradients(outline) // (share if recipe.run.shard.parameters else 1),
        optimizer=update.state_bytes() // share,
        ema=by_kind["ema"] // share,
        ema_is_apart=recipe.optim.ema.device == "cpu" and outline.device != "cpu",
        update=update.working_bytes(),
        loading=0,
        checkpoint=update.checkpoint_bytes(),
        copy=update.checkpoint_bytes() // share if is_asynchronous(recipe.run) else 0,
        activations=measure_passes(outline, samples),
        grid=outline.family.grid,
        text_numbers=outline.text_numbers(),
        adapter=str(outline.adapter or ""),
        keeps_gradients=processes > 1
        or recipe.optim.in_backward
        or recipe.optim.accumulation > 1
        or any(count < math.ceil(batches[size] / processes) for size, count in samples.items()),
    )
    memory = with_offload(outline, memory)
    # parts are read in the type they stay in, or as masters and then cast; states of the first step do not exist yet
    frozen_forms = forms_of_frozen(recipe, [part.name for part in parts])
    width = outline.precision.form_of_trained.dtype.itemsize
    sizes = [part.bytes if part.name in frozen_forms else width * part.parameters for part in parts if part.loaded]
    read = sum(sizes) if outline.device == "cpu" else 0
    optimizer_bytes = sum(size for kind, size in by_kind.items() if kind.startswith("opt.")) // share
    before = memory.steady - (0 if memory.update_is_apart else memory.gradients + memory.optimizer - optimizer_bytes)
    return replace(memory, loading=max(read, before))


def count_samples(recipe: Recipe, batches: Mapping[Size, int], *, processes: int) -> dict[Size, int]:
    """The samples that a process passes through the model at once, by bucket. batches: as in `memory_of`."""
    whole = resolve_padded_size(recipe.run, recipe.data.largest_batch, processes)
    of_device = {size: math.ceil(batch / processes) for size, batch in batches.items()}
    return {size: whole or min(count, recipe.run.micro_batch or count) for size, count in of_device.items()}


def measure_passes(outline: MetaModel, samples: Mapping[Size, int]) -> dict[Size, Activations]:
    """What the buckets that may need most save in a forward pass. samples: as `count_samples` returns them."""
    return {size: outline.activations(portrait(size), count) for size, count in select_largest(samples).items()}


def with_offload(outline: MetaModel, memory: Memory) -> Memory:
    """The same memory with `outline.blocks` on the device and the other blocks on the host. memory: without offload."""
    stays = outline.adapter is not None  # trained weights of an adapter
    blocks = memory.blocks or tuple(
        sum(_bytes(t) for m in block for t in (*m.parameters(), *m.buffers()) if not (stays and t.requires_grad))
        for block in outline.family.blocks()
    )
    if outline.blocks is None:
        return replace(memory, blocks=blocks)
    recipe, on_device = outline.recipe, min(sum(blocks), outline.blocks * max(blocks))
    is_apart = trains_offloaded(recipe, outline.blocks)
    own_states = memory.gradients + memory.optimizer + memory.ema if is_apart else 0
    moved = sum(part.bytes for part in memory.parts if part.name in recipe.model.train) if is_apart else 0
    on_host = (memory.masters + moved if is_apart else sum(blocks)) + own_states
    memory = replace(
        memory,
        weights=memory.weights - sum(blocks) + on_device,
        blocks=blocks,
        on_host=on_host,
        update_is_apart=is_apart,
    )
    return replace(memory, loading=min(memory.loading, memory.steady))


def _bytes_of_gradients(outline: MetaModel) -> int:
    """Bytes of gradients allocated at once. Under ddp they are views of the communication buckets, and always
    allocated."""
    if outline.recipe.run.runtime == "fsdp":
        return sum(_bytes(p) for p in outline.trained.values())
    gradient_bytes = [p.numel() * outline.precision.gradients.itemsize for p in outline.trained.values()]
    if outline.recipe.optim.in_backward:  # one, and what its step takes, while activations are still allocated
        return max(gradient_bytes) + outline.update.working_bytes()
    return sum(gradient_bytes)


def count_sharing_processes(recipe: Recipe, processes: int) -> int:
    """How many processes share the trained weights."""
    if recipe.run.runtime != "fsdp":
        return 1
    return recipe.run.shard.group or processes


def _weights_in_use(outline: MetaModel, moved: int, share: int) -> int:
    """Bytes of the trained parts that the passes compute with. With sharded parameters, two blocks at once: the current
    one and the next, which is being gathered."""
    if share == 1 or not outline.recipe.run.shard.parameters:
        return moved
    blocks = [sum(_bytes(p) for module in block for p in module.parameters()) for block in outline.family.blocks()]
    return min(moved, moved - sum(blocks) + 2 * max(blocks))


class _MetaRuntime(Runtime):
    """One process without computation: the model stays on the meta device, without memory for values."""

    has_values = False

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(torch.device("cpu"), Launch(), recipe.run)

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        return trained


class MetaModel:
    """The model of a recipe as a run opens it (`assemble.open_model`), without memory for its values, to count them.
    Its trained parameters and their update are on the meta device; for the passes, its parts and the objective are fake
    tensors on `device`. A folder of configurations is enough; weights are not opened. The attention of xformers is
    counted as torch's.

    recipe: located. device: "cpu" or "cuda", for the rules of autocast and attention. sums: of gradients, as in
    `Resolved`; by default those of the recipe. blocks: of the denoiser on the device at once, None for all of them;
    initially those of the recipe. Raises WeightsError for a model that cannot be described, RecipeError E1021 to E1024
    for what cannot be trained this way, E1060 and E1062 for an attention kernel that is not available."""

    def __init__(self, recipe: Recipe, device: str = "cpu", sums: GradientSums | None = None) -> None:
        self.recipe, self.device, self.blocks = recipe, device, blocks_on_device(recipe)
        self.sums = sums or gradient_sums(recipe)
        self.precision = Precision.of(recipe.run, self.sums)
        with EmptyOnMeta():
            self.files = family_class(recipe).files.from_configs(recipe.model)
        if not only_texts_of_files(recipe) and not set(self.files.parts) & set(self.files.spec.text_parts):
            self.files.network(
                self.files.spec.text_parts[0]
            )  # raises an error about the missing one, and where to get it
        attention.require_package(recipe.model.attention)
        # offloaded blocks are counted separately, and sharded weights have gradients of their type
        sums_of_update: GradientSums = "same" if recipe.run.runtime == "fsdp" else self.sums
        opened = replace(resolve(_remove_wrappers(recipe), 1, sums=sums_of_update), blocks_on_device=None)
        model = open_model(opened, self.files, _MetaRuntime(recipe), parts=self.files.parts)
        self.model = _with_wrappers_counted(model, recipe)
        self.family, self.trained, self.adapter = model.family, model.trained, model.adapter
        self.update, self.prediction = model.update, model.prediction
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        with self._fake_tensors():
            for module in self.family.parts().values():
                give_fakes(module, device)
            self.objective = model.objective.to(device)
        self._again_most: int | None = None
        self._recomputing: Callable[[], AbstractContextManager[Any]] = nullcontext
        if recipe.run.gradient_checkpointing.enabled:
            blocks = list(self.family.blocks())
            for block in blocks_to_recompute(blocks, recipe.run.gradient_checkpointing):
                for module in block:
                    module.forward = self._wrap_with_counter(module.forward)
            recompute_blocks(blocks, recipe.run.gradient_checkpointing)

    def activations(self, size: Size, samples: int) -> Activations:
        """What the forward pass of a micro-batch saves. size: of its images."""
        counter = SavedBytes(self._model_tensors())
        self._again_most = 0
        moving = (p for p in self._model_tensors() if isinstance(p, nn.Parameter) and p.requires_grad)
        sizes = {id(p): p.numel() * self.precision.gradients.itemsize for p in moving}
        with self._fake_tensors(), counter.record_first_use(self.family.parts().values(), sizes):
            noised, text, weight = self._micro_batch(size, samples)
            with counter:
                loss = self._loss(noised, text, weight)
            assert loss.requires_grad
        again, self._again_most = self._again_most, None
        return Activations(samples, counter.bytes, again, counter.with_gradients(sum(sizes.values())) + again)

    def both_passes(
        self,
        size: Size,
        samples: int,
        counting: AbstractContextManager[Any],
        recomputing: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Runs forward and backward pass of a micro-batch within `counting`; frozen encoders run before it. size: of
        its images. recomputing: the context in which the backward pass recomputes a block."""
        with self._fake_tensors():
            noised, text, weight = self._micro_batch(size, samples)
            with counting, attention.use_attention(self.recipe.model.attention, torch.device(self.device)):
                loss = self._loss(noised, text, weight)
                self._recomputing = recomputing
                loss.backward()  # recomputes with the same attention
                self._recomputing = nullcontext
        for parameter in self.trained.values():
            parameter.grad = None

    def text_numbers(self) -> int:
        """The number of values in a caption's embedding."""
        with self._fake_tensors(), torch.no_grad():
            return layout_of(self._encode_empty_captions(1)).numbers

    @contextmanager
    def _fake_tensors(self) -> Iterator[None]:
        with self._fake, WithoutPinning():
            yield

    def _micro_batch(self, size: Size, samples: int) -> tuple[Noised, TextEmbedding | None, Tensor]:
        """Noised latents, text of a frozen encoder, weights of samples. Called in fake-tensor mode."""
        grid = self.family.grid
        latents = latent_size(size, grid.pixels, grid.frames)
        joined_images = self.recipe.data.clips.images if self.recipe.data.has_clips else 0
        frames = (latents.frames + joined_images,) if latents.frames + joined_images > 1 else ()
        x = torch.zeros(samples, grid.channels, *frames, latents.height, latents.width, device=self.device)
        t = torch.zeros(samples, dtype=torch.int64, device=self.device)
        noised = Noised(x_0=x, noise=x.clone(), x_t=x, model_input=x, model_t=t, level=t.float())
        return noised, self._frozen_text(samples), torch.ones(samples, device=self.device)

    def _loss(self, noised: Noised, text: TextEmbedding | None, weight: Tensor) -> Tensor:
        device = torch.device(self.device)
        with attention.use_attention(self.recipe.model.attention, device), self.precision.autocast(device):
            condition = self.family.condition(text or self.family.encode_text([""] * len(weight)), None)
            if self.recipe.data.has_clips and self.recipe.data.clips.images:
                of_images = self._frozen_text(len(weight) * self.recipe.data.clips.images)
                condition = replace(condition, joined_images=of_images)
            images = {name: torch.zeros_like(noised.x_0) for name in self.recipe.data.condition_names}
            predicted = self.family.predict(noised, replace(condition, images=images))
        return self.objective.loss(predicted, noised, weight).total

    def _frozen_text(self, samples: int) -> TextEmbedding | None:
        """None if the text encoder or a learned token is trained: its pass is then counted."""
        if self.recipe.model.trained_encoders:
            return None
        with torch.no_grad():
            return self._encode_empty_captions(samples)

    def _encode_empty_captions(self, samples: int) -> TextEmbedding:
        """The embedding by the text encoder; without a text encoder, in the shape that embeddings in files must
        have; with images of the largest size where the text encoder sees them."""
        shape, seen = self.files.text_shape(), self.files.text_images
        if shape is not None and seen is not None:
            shape = shape[0] + seen.tokens * len(self.recipe.data.condition_names), shape[1]
        elif shape is None or "text_encoder" in self.family.parts():
            return self.family.encode_text([""] * samples)
        states = torch.zeros(samples, *shape, dtype=self.precision.frozen, device=self.device)
        mask = torch.ones(samples, shape[0], dtype=torch.int64, device=self.device)
        return TextEmbedding(states, mask, lengths=(shape[0],) * samples)

    def _model_tensors(self) -> Iterable[Tensor]:
        for module in self.family.parts().values():
            yield from module.parameters()
            yield from module.buffers()

    def _wrap_with_counter(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Counts what a block saves by itself, within its recompute, while `activations` runs: then the block is not
        computed again."""

        def run(*inputs: Any, **named: Any) -> Any:
            if self._again_most is None:
                with self._recomputing():
                    return forward(*inputs, **named)
            counter = SavedBytes(self._model_tensors())
            with counter:
                result = forward(*inputs, **named)
            self._again_most = max(self._again_most, counter.bytes)
            return result

        return run


def _remove_wrappers(recipe: Recipe) -> Recipe:
    """The recipe without what needs values or is counted separately: compiled blocks, recomputed blocks, kernels of
    xformers, and the device of the EMA, whose size is the same anywhere."""
    values: dict[str, Any] = {
        "run.compile": False,
        "run.gradient_checkpointing.enabled": False,
        "optim.ema.device": "same",
    }
    if recipe.model.attention == "xformers":
        values["model.attention"] = "auto"
    return with_values(recipe, values)


def _with_wrappers_counted(model: TrainableModel, recipe: Recipe) -> TrainableModel:
    """The same model with the numbers of recomputed blocks and compiled modules of the run."""
    blocks, settings = list(model.family.blocks()), recipe.run.gradient_checkpointing
    recomputed = len(blocks_to_recompute(blocks, settings)) if settings.enabled else 0
    return replace(model, recomputed_blocks=recomputed, compiled_blocks=sum(map(len, blocks)) * recipe.run.compile)


def build_described_model(kind: type[ModelFamily], settings: ModelSettings) -> tuple[ModelFiles, ModelFamily]:
    """A model by its configurations only, and its family with all parts on the meta device. Raises WeightsError."""
    with EmptyOnMeta():
        files = kind.files.from_configs(settings)
        return files, kind.load(files)


def _part(outline: MetaModel, name: str, trained: Mapping[str, int]) -> PartMemory:
    module = outline.family.parts()[name]
    return PartMemory(
        name,
        parameters=low_bit.numbers_of(module),
        trained=sum(count for full, count in trained.items() if full.split("/")[0] == name),
        bytes=sum(map(_bytes, (*module.parameters(), *module.buffers()))),
        loaded=name in needed_parts(outline.recipe),
    )


def select_largest(samples: Mapping[Size, int]) -> dict[Size, int]:
    """The buckets that may need most memory, with their samples: none with fewer pixels and samples than another."""
    chosen: dict[Size, int] = {}
    pixels = {size: size.width * size.height * size.frames for size in samples}
    for size, count in sorted(samples.items(), key=lambda item: (pixels[item[0]], item[1]), reverse=True):
        if all(count > other for other in chosen.values()):
            chosen[size] = count
    return chosen


def portrait(size: Size) -> Size:
    """A size, or its transpose, which costs the same."""
    low, high = sorted((size.width, size.height))
    return replace(size, width=low, height=high)


def _bytes_by_kind(tensors: Mapping[str, Tensor]) -> Counter[str]:
    sizes: Counter[str] = Counter()
    for name, tensor in tensors.items():
        sizes[name.split("/")[0]] += _bytes(tensor)
    return sizes


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def bytes_of(numbers: int, dtype: str) -> int:
    """Bytes of so many values of a recipe's type ("fp32", "fp16", "bf16")."""
    return numbers * DTYPES[dtype].itemsize
