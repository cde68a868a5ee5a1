"""Layer streaming, for networks that are larger than the available memory: layers are read a group at a time, run for
all forward passes that wait for them, and freed.

Each pass runs in a thread of its own until it reaches layers that are not loaded. When all passes wait, the group that
most of them wait for is loaded. A pass computes the same as with the whole network in memory: results are bit-exact.
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
"""Passes that share each loaded group, by default."""
SMALL = 16 << 20
"""Bytes below which an embedding table is kept in memory instead of streamed."""
_MAX_POSITIONS = 1000
"""Embedding tables of at most so many rows are not streamed: they may hold positions, whose shape other code reads."""


class Fills(Protocol):
    """Loads tensors of a network, and frees them."""

    def fill(self, names: Iterable[str]) -> None: ...
    def free(self, names: Iterable[str]) -> None: ...


@dataclass(frozen=True, eq=False, slots=True)
class LayerGroup:
    """Layers that are loaded together. names: of their tensors in the network."""

    names: tuple[str, ...]
    filling: Fills


class LayerStreamer:
    """Streams layers. size: bytes of layers that are loaded at a time, at least one layer. together: how many passes at
    most share each loaded group."""

    def __init__(self, size: int, together: int = TOGETHER) -> None:
        self._size, self.together = size, together
        self._loaded: LayerGroup | None = None
        self._change = threading.Condition()
        self._waiting: dict[int, LayerGroup | None] = {}
        self._running = self._most = 0
        self._is_over = False

    def take(self, network: nn.Module, filling: Fills, sizes: Mapping[str, int]) -> None:
        """Loads a network except for its layers and large embedding tables, which are loaded when a pass reaches them.
        sizes: bytes of its stored tensors, by name."""
        rest = list(sizes)
        for paths in _layers(network):
            names: list[str] = []
            modules: list[nn.Module] = []
            for path in [*paths, ""]:
                of_layer = [name for name in sizes if path and name.startswith(f"{path}.")]
                if path and len(paths) == 1 and sum(sizes[name] for name in of_layer) < min(SMALL, self._size):
                    break  # a small table
                if names and (not path or sum(sizes[name] for name in (*names, *of_layer)) > self._size):
                    self._gate(modules, LayerGroup(tuple(names), filling))
                    names, modules = [], []
                names += of_layer
                modules += [network.get_submodule(path)] if path else []
                rest = [name for name in rest if name not in of_layer]
        filling.fill(rest)

    def _gate(self, modules: Sequence[nn.Module], group: LayerGroup) -> None:
        group.filling.free(group.names)
        for module in modules:
            module.forward = self._load_before(module.forward, group)

    def _load_before(self, forward: Callable[..., Any], group: LayerGroup) -> Callable[..., Any]:
        def run(*inputs: Any, **named: Any) -> Any:
            self._reach(group)
            return forward(*inputs, **named)

        return run

    def run(self, passes: Sequence[Callable[[], Result]], at_once: int = 1) -> list[Result]:
        """Runs passes and returns their results in order. at_once: how many compute at the same time. Raises the first
        error of a pass or of loading."""
        results: dict[int, Result] = {}
        errors: list[BaseException] = []

        def run_pass(number: int, compute: Callable[[], Result]) -> None:
            try:
                self._reach(None)
                results[number] = compute()
            except BaseException as error:  # re-raised in the calling thread
                errors.append(error)
                self._is_over = True
            with self._change:
                self._running -= 1
                self._change.notify_all()

        assert not self._most, "run() must not be nested"
        self._load(None)
        self._most, self._running, self._is_over = max(at_once, 1), len(passes), False
        threads = [threading.Thread(target=run_pass, args=each, daemon=True) for each in enumerate(passes)]
        try:
            for thread in threads:
                thread.start()
            while (group := self._next()) is not None:
                self._load(group)
        except BaseException as error:
            errors.insert(0, error)
        finally:
            with self._change:
                self._is_over = True
                self._change.notify_all()
            for thread in threads:
                thread.join()
            self._most, self._waiting = 0, {}
            self._load(None)
        if errors:
            raise errors[0]
        return [results[number] for number in range(len(passes))]

    def _next(self) -> LayerGroup | None:
        """The group that most passes wait for, once all of them wait or have ended; None when all have ended."""
        with self._change:
            self._change.wait_for(lambda: not self._running and self._loaded not in self._waiting.values())
            return Counter(self._waiting.values()).most_common(1)[0][0] if self._waiting else None

    def _load(self, group: LayerGroup | None) -> None:
        """Frees the loaded layers and loads others."""
        if self._loaded is not None:
            self._loaded.filling.free(self._loaded.names)
        self._loaded = None
        if group is not None:
            group.filling.fill(group.names)
        with self._change:
            self._loaded = group
            self._change.notify_all()

    def _reach(self, group: LayerGroup | None) -> None:
        """Waits until a group of layers is loaded; None: until the pass may start."""
        if not self._most:  # a single pass, outside run()
            if self._loaded is not group:
                self._load(group)
            return
        me = threading.get_ident()
        with self._change:
            if self._loaded is group and group is not None:
                return
            self._waiting[me] = group
            self._running -= 1
            self._change.notify_all()
            self._change.wait_for(lambda: self._is_over or (self._loaded is group and self._running < self._most))
            del self._waiting[me]
            self._running += 1
            if self._is_over and self._loaded is not group:
                raise RuntimeError("another pass failed")


def _layers(network: nn.Module) -> Iterator[list[str]]:
    """The paths of consecutive layers, one list for each stack of them; a large embedding table is a separate list."""
    inside = " "
    for path, module in network.named_modules():
        if path.startswith(inside):
            continue
        if isinstance(module, nn.ModuleList):
            inside = f"{path}."
            yield [f"{path}.{name}" for name, _ in module.named_children()]
        elif isinstance(module, nn.Embedding) and module.num_embeddings > _MAX_POSITIONS:
            yield [path]
