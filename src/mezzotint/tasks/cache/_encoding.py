"""How a filling runs encoders, so that an entry is the same whatever is made with it.

An encoder is always shown one shape: a picture or a clip alone, captions by eight, filled up where there are fewer. On
a CPU each of these is computed by one thread, as another number of them gives other bits, and several at once; an
autoencoder's weights lie channels last there, which costs fewer page faults. The kernels of a GPU may be of a kind that
gives other bits each time; so there the first batch is encoded twice, and what comes out is said and kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor

from mezzotint.families.base import ModelFamily
from mezzotint.stages import TextEmbedding
from mezzotint.weights.layers_in_turn import LayersInTurn

CAPTIONS = 8
"""In a batch. Measured on a CPU: one by one takes 1.25 times the time, and more than eight cost page faults. Two
pictures at once cost page faults, too, and have other bits than one. Whoever changes this raises `entries.ENCODING`."""

NO_REPEAT = (
    "cache: this device gave other numbers when it encoded the same again, so entries depend on when they are made: a "
    "cache that is made anew or mended may not give the same run to the bit (run.deterministic=true helps where it can)"
)

Item = TypeVar("Item")
Result = TypeVar("Result", Tensor, TextEmbedding)


class Encoding:
    """Runs an encoder over batches. device: where it computes. `repeats`: whether it gave the same numbers when it
    was shown the same again."""

    def __init__(self, device: torch.device) -> None:
        self.repeats = True
        self._proves = device.type != "cpu"
        self._threads = torch.get_num_threads() if device.type == "cpu" else 0

    def laid_out(self, family: ModelFamily) -> ModelFamily:
        """The family with its autoencoder as it is fastest here."""
        if self._threads:
            for weight in (one for module in family.parts().values() for one in module.parameters() if one.ndim == 4):
                weight.data = weight.data.contiguous(memory_format=torch.channels_last)
        return family

    def text_of(self, family: ModelFamily, captions: Sequence[str]) -> TextEmbedding:
        """The embeddings of no more captions than a batch has."""
        shown = [*captions, *[captions[-1]] * (CAPTIONS - len(captions))]
        with torch.no_grad():
            text = family.encode_text(shown)
        states, mask, pooled = (None if one is None else one[: len(captions)] for one in _numbers(text))
        assert states is not None
        return TextEmbedding(states, mask, pooled)

    def run(
        self,
        encode: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        at_once: int,
        in_turn: LayersInTurn | None = None,
    ) -> Generator[tuple[Item, Result], None, None]:
        """Each item with what `encode` gives for it, in order. at_once: that are computed at most, as each takes memory
        of its own. in_turn: reads the encoder's layers, which many items then go through together."""
        if in_turn is not None:
            yield from self._together(encode, items, in_turn, at_once)
        elif not self._threads:
            for item in items:
                result = encode(item)
                if self._proves:
                    self._proves = False
                    self.repeats = all(map(_equal, _numbers(result), _numbers(encode(item))))
                yield item, result
        else:
            try:
                threads = min(self._threads, max(at_once, 1))
                with ThreadPoolExecutor(threads, "encode", torch.set_num_threads, (1,)) as pool:
                    yield from _by_threads(pool, encode, items, ahead=threads)
            finally:
                torch.set_num_threads(self._threads)

    def _together(
        self, encode: Callable[[Item], Result], items: Iterable[Item], in_turn: LayersInTurn, at_once: int
    ) -> Iterator[tuple[Item, Result]]:
        def one(item: Item) -> Result:
            if self._threads:
                torch.set_num_threads(1)
            return encode(item)

        wave: list[Item]
        try:
            for wave in _waves(items, in_turn.together):
                proves, self._proves = self._proves, False
                shown: list[Item] = [*wave, wave[0]] if proves else wave
                results = in_turn.run([partial(one, item) for item in shown], min(self._threads, max(at_once, 1)))
                if proves:
                    self.repeats = all(map(_equal, _numbers(results[0]), _numbers(results[-1])))
                yield from zip(wave, results, strict=False)
        finally:
            if self._threads:
                torch.set_num_threads(self._threads)


def _waves(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while wave := list(islice(rest, size)):
        yield wave


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


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))
