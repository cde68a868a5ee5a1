"""Networks that are larger than the memory there is: their layers are read a group at a time, run over everything that
waits for them, and let go.

Passes run in threads of their own, each as far as layers that are not there. When all of them wait, the group that most
wait for is read. A pass computes what it would with the whole network, layer by layer, so that its bits are the same.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import nn

Result = TypeVar("Result")
TOGETHER = 32
"""Passes that go through layers together."""
SMALL = 16 << 20
"""Bytes of a table of words that is not worth a group of its own."""
_PLACES = 1000
"""Rows of a table that may be one of places, whose shape is looked at from outside."""


class Fills(Protocol):
    """What gives tensors of a network their values, and takes them away."""

    def fill(self, names: Iterable[str]) -> None: ...
    def let_go(self, names: Iterable[str]) -> None: ...


@dataclass(frozen=True, eq=False, slots=True)
class LayerGroup:
    """Layers that are there together: the names of their tensors in the network."""

    names: tuple[str, ...]
    filling: Fills


class LayersInTurn:
    """size: bytes of layers that are there at once; one layer is in any case. together: how many passes go through
    them together at most."""

    def __init__(self, size: int, together: int = TOGETHER) -> None:
        self._size, self.together = size, together
        self._here: LayerGroup | None = None
        self._change = threading.Condition()
        self._waiting: dict[int, LayerGroup | None] = {}
        self._running = self._most = 0
        self._is_over = False

    def take(self, network: nn.Module, filling: Fills, sizes: Mapping[str, int]) -> None:
        """Gives a network all but its layers and large tables of words, which are read when they are reached. sizes:
        bytes of its stored tensors, by its names."""
        rest = list(sizes)
        for paths in _layers(network):
            names: list[str] = []
            modules: list[nn.Module] = []
            for path in [*paths, ""]:
                own = [name for name in sizes if path and name.startswith(f"{path}.")]
                if path and len(paths) == 1 and sum(sizes[name] for name in own) < min(SMALL, self._size):
                    break  # a small table
                if names and (not path or sum(sizes[name] for name in (*names, *own)) > self._size):
                    self._gate(modules, LayerGroup(tuple(names), filling))
                    names, modules = [], []
                names += own
                modules += [network.get_submodule(path)] if path else []
                rest = [name for name in rest if name not in own]
        filling.fill(rest)

    def _gate(self, modules: Sequence[nn.Module], group: LayerGroup) -> None:
        group.filling.let_go(group.names)
        for module in modules:
            module.forward = self._gated(module.forward, group)

    def _gated(self, forward: Callable[..., Any], group: LayerGroup) -> Callable[..., Any]:
        def run(*inputs: Any, **named: Any) -> Any:
            self._reach(group)
            return forward(*inputs, **named)

        return run

    def run(self, passes: Sequence[Callable[[], Result]], at_once: int = 1) -> list[Result]:
        """What these passes give, in order. at_once: that compute at the same time. The first error of one of them, or
        of reading, is raised."""
        results: dict[int, Result] = {}
        errors: list[BaseException] = []

        def one(number: int, compute: Callable[[], Result]) -> None:
            try:
                self._reach(None)
                results[number] = compute()
            except BaseException as error:  # it is raised where the passes were begun
                errors.append(error)
                self._is_over = True
            with self._change:
                self._running -= 1
                self._change.notify_all()

        assert not self._most, "passes within passes"
        self._turn_to(None)
        self._most, self._running, self._is_over = max(at_once, 1), len(passes), False
        threads = [threading.Thread(target=one, args=each, daemon=True) for each in enumerate(passes)]
        try:
            for thread in threads:
                thread.start()
            while (group := self._next()) is not None:
                self._turn_to(group)
        except BaseException as error:
            errors.insert(0, error)
        finally:
            with self._change:
                self._is_over = True
                self._change.notify_all()
            for thread in threads:
                thread.join()
            self._most, self._waiting = 0, {}
            self._turn_to(None)
        if errors:
            raise errors[0]
        return [results[number] for number in range(len(passes))]

    def _next(self) -> LayerGroup | None:
        """The group that most wait for, once all passes wait or have ended; None when they have."""
        with self._change:
            self._change.wait_for(lambda: not self._running and self._here not in self._waiting.values())
            return Counter(self._waiting.values()).most_common(1)[0][0] if self._waiting else None

    def _turn_to(self, group: LayerGroup | None) -> None:
        """Lets go of the layers that are there, and reads others."""
        if self._here is not None:
            self._here.filling.let_go(self._here.names)
        self._here = None
        if group is not None:
            group.filling.fill(group.names)
        with self._change:
            self._here = group
            self._change.notify_all()

    def _reach(self, group: LayerGroup | None) -> None:
        """A pass needs a group of layers; None is its beginning."""
        if not self._most:  # one pass, that nobody else waits for
            if self._here is not group:
                self._turn_to(group)
            return
        me = threading.get_ident()
        with self._change:
            if self._here is group and group is not None:
                return
            self._waiting[me] = group
            self._running -= 1
            self._change.notify_all()
            self._change.wait_for(lambda: self._is_over or (self._here is group and self._running < self._most))
            del self._waiting[me]
            self._running += 1
            if self._is_over and self._here is not group:
                raise RuntimeError("another pass failed")


def _layers(network: nn.Module) -> Iterator[list[str]]:
    """The paths of layers that follow each other, a list for each stack of them; of a table of words, its own."""
    inside = " "
    for path, module in network.named_modules():
        if path.startswith(inside):
            continue
        if isinstance(module, nn.ModuleList):
            inside = f"{path}."
            yield [f"{path}.{name}" for name, _ in module.named_children()]
        elif isinstance(module, nn.Embedding) and module.num_embeddings > _PLACES:
            yield [path]
