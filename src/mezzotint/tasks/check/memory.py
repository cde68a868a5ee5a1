"""How much memory a run takes, computed from the model's configurations without allocating it.

The model is opened as in a run, on the meta device, and gets fake tensors, which have shape, type and device but no
values. The real code runs on them: the forward pass up to the loss, with the run's autocast, attention and recompute.
What autograd saves of that pass is counted storage by storage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from mezzotint.families.base import Grid
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.tasks.assemble import needed_parts
from mezzotint.tasks.check.meta_model import Activations, MetaModel
from mezzotint.tasks.holding import forms_of_frozen, trains_offloaded
from mezzotint.training.checkpoints.background_save import is_asynchronous
from mezzotint.training.precision.policy import DTYPES
from mezzotint.training.whole_batches import resolve_padded_size
from mezzotint.weights import low_bit


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
    animates: bool = False
    vision_numbers: int = 0
    """See `ModelFamily`."""
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
        weights=sum(part.bytes for part in parts if part.loaded)
        - moved
        + _weights_in_use(outline, moved, share)
        + _bytes_of_frozen_copy(outline),
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
        animates=outline.family.animates,
        vision_numbers=outline.family.vision_numbers,
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


def _bytes_of_frozen_copy(outline: MetaModel) -> int:
    """Bytes of the frozen copy of the trained parts (`objective.preserve.frozen_copy`)."""
    base, own = outline.model.base, outline.family.parts()
    if base is None:
        return 0
    copied = [module for part, module in base.family.parts().items() if module is not own.get(part)]
    return sum(_bytes(tensor) for module in copied for tensor in (*module.parameters(), *module.buffers()))


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
