"""Which kernels a GPU takes, and how its memory is dealt out."""

from __future__ import annotations

from typing import Annotated, Literal

from mezzotint.recipe.base import FREE, RECORDED, Section

Choice = Literal["auto", True, False]


def is_on(choice: Choice, auto: bool) -> bool:
    """What a choice comes to. auto: where it is left open."""
    return auto if choice == "auto" else choice


class KernelSettings(Section):
    """Which kernels a GPU takes. They compute the same up to rounding."""

    channels_last: Annotated[Choice, RECORDED] = "auto"
    """Keep the weights of convolutions with a pixel's channels side by side, as tensor cores read them. `auto` does so
    on a GPU in bf16 and fp16 where the model is compiled: torch's own group norm would turn each picture round and back
    again. Not with `run.runtime=fsdp`."""

    measured: Annotated[Choice, RECORDED] = "auto"
    """Let cuDNN try its kernels for each new shape of a convolution and take the fastest (`cudnn.benchmark`). `auto`
    does so in bf16 and fp16. Without effect under `run.deterministic`: what is chosen by time may be another kernel at
    the next start."""

    whole_batches: Annotated[Choice, RECORDED] = "auto"
    """Fill short micro-batches up with samples of weight 0, which are computed and count nowhere, so that a bucket has
    one shape. `auto` does so with `run.compile`, which compiles each shape anew."""

    graphs: Annotated[bool, RECORDED] = False
    """With `run.compile` on a GPU: record the kernels of each block once and launch them as one (CUDA graphs). Saves
    the host's time where batches are small, and takes more memory."""

    allocator: Annotated[Literal["expandable", "torch"], FREE] = "expandable"
    """How torch deals out the memory of a GPU: in `expandable` segments, of which less is lost between buckets of
    different sizes, or as `torch` does by itself. What the environment says in PYTORCH_CUDA_ALLOC_CONF counts before
    it."""
