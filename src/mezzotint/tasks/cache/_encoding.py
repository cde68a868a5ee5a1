"""Runs encoders so that an entry does not depend on what is encoded with it.

An encoder always gets the same shape: one image or clip, or eight captions, padded if there are fewer; a caption with
images that the text encoder sees is encoded by itself. On a CPU each of
these batches is computed by one thread, since the number of threads changes the bits, and several run concurrently; an
autoencoder's weights are channels-last there, which causes fewer page faults. GPU kernels may be nondeterministic, so
there the first batch is encoded twice, and a difference is reported and recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from mezzotint.families.base import ModelFamily
from mezzotint.stages import TextEmbedding
from mezzotint.weights.layer_streaming import LayerStreamer

CAPTIONS = 8
"""Captions per batch. Measured on a CPU: single captions take 1.25 times as long, and more than eight cause page
faults. Batches of two images cause page faults, too, and give other bits than one. Changing this requires a new
`entries.ENCODING`."""

NO_REPEAT = (
    "cache: encoding is not deterministic on this device: encoding the same batch again gave other numbers; a run with "
    "a rebuilt or repaired cache may not be bit-exact (run.deterministic=true helps where possible)"
)

Item = TypeVar("Item")
Result = TypeVar("Result", Tensor, TextEmbedding)


class Encoding:
    """Runs an encoder over batches. device: where it computes. `repeats`: whether encoding the same batch again gave
    the same numbers."""

    def __init__(self, device: torch.device) -> None:
        self.repeats = True
        self._is_to_verify = device.type != "cpu"
        self._threads = torch.get_num_threads() if device.type == "cpu" else 0

    def set_memory_format(self, family: ModelFamily) -> ModelFamily:
        """Sets the autoencoder's fastest memory format for the device, in place; returns the family."""
        if self._threads:
            for weight in (p for module in family.parts().values() for p in module.parameters() if p.ndim == 4):
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        return family

    def text_with_images_of(self, family: ModelFamily, caption: str, images: Sequence[Tensor | None]) -> TextEmbedding:
        """The embedding of a caption with its condition images, for a text encoder that sees them."""
        with torch.no_grad():
            return replace(family.encode_text_with_images([caption], [images]), lengths=None)

    def text_of(self, family: ModelFamily, captions: Sequence[str]) -> TextEmbedding:
        """The embeddings of at most `CAPTIONS` captions."""
        padded = [*captions, *[captions[-1]] * (CAPTIONS - len(captions))]
        with torch.no_grad():
            text = family.encode_text(padded)
        states, mask, pooled = (None if tensor is None else tensor[: len(captions)] for tensor in _numbers(text))
        assert states is not None
        return TextEmbedding(states, mask, pooled)

    def run(
        self,
        encode: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        at_once: int,
        layer_streamer: LayerStreamer | None = None,
    ) -> Generator[tuple[Item, Result], None, None]:
        """Yields each item with its result of `encode`, in order. at_once: how many are computed concurrently at most,
        since each needs memory. in_turn: streams the encoder's layers; many items then share each loaded group."""
        if layer_streamer is not None:
            yield from self._run_streamed(encode, items, layer_streamer, at_once)
        elif not self._threads:
            for item in items:
                result = encode(item)
                if self._is_to_verify:
                    self._is_to_verify = False
                    self.repeats = all(map(_equal, _numbers(result), _numbers(encode(item))))
                yield item, result
        else:
            try:
                threads = min(self._threads, max(at_once, 1))
                with ThreadPoolExecutor(threads, "encode", torch.set_num_threads, (1,)) as pool:
                    yield from _by_threads(pool, encode, items, ahead=threads)
            finally:
                torch.set_num_threads(self._threads)

    def _run_streamed(
        self, encode: Callable[[Item], Result], items: Iterable[Item], layer_streamer: LayerStreamer, at_once: int
    ) -> Iterator[tuple[Item, Result]]:
        def encode_one(item: Item) -> Result:
            if self._threads:
                torch.set_num_threads(1)
            return encode(item)

        group: list[Item]
        try:
            for group in _split_into_groups(items, layer_streamer.together):
                verifies, self._is_to_verify = self._is_to_verify, False
                inputs: list[Item] = [*group, group[0]] if verifies else group
                passes = [partial(encode_one, item) for item in inputs]
                results = layer_streamer.run(passes, min(self._threads, max(at_once, 1)))
                if verifies:
                    self.repeats = all(map(_equal, _numbers(results[0]), _numbers(results[-1])))
                yield from zip(group, results, strict=False)
        finally:
            if self._threads:
                torch.set_num_threads(self._threads)


def _split_into_groups(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


def _by_threads(
    pool: ThreadPoolExecutor, encode: Callable[[Item], Result], items: Iterable[Item], *, ahead: int
) -> Iterator[tuple[Item, Result]]:
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    for item in items:
        waiting.append((item, pool.submit(encode, item)))
        if len(waiting) > ahead:
            first, result = waiting.popleft()
            yield first, result.result()
    for first, result in waiting:
        yield first, result.result()


def _numbers(result: Tensor | TextEmbedding) -> list[Tensor | None]:
    return [result] if isinstance(result, Tensor) else [result.states, result.mask, result.pooled]


def _equal(first: Tensor | None, second: Tensor | None) -> bool:
    return first is second or (first is not None and second is not None and torch.equal(first, second))
