"""What libraries import for the case that somebody asks for it is imported when somebody does.

For one network, diffusers imports all others and a dozen packages: transformers for one class, peft and scipy where
they are installed, torch's compiler for a mark on functions. That is half of a start. Here these modules wait until one
of their names is used, as Python 3.15's lazy imports do. Nothing is replaced: a name means the same before and after.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any

OPEN = frozenset(
    {
        "diffusers.hooks", "diffusers.models.autoencoders", "diffusers.models.transformers", "diffusers.models.unets",
        "tensorboard.summary",
    }
)  # fmt: skip
"""Packages whose own imports are all of their modules; a module of theirs is imported without the others."""

DYNAMO = "torch._dynamo"
FOR_LATER = {
    "diffusers.quantizers.torchao": "diffusers",
    "peft": "diffusers",
    "peft.helpers": "diffusers",
    "peft.tuners": "diffusers",
    "peft.tuners.tuners_utils": "diffusers",
    "scipy.integrate": "diffusers",
    "scipy.optimize": "transformers",
    "scipy.stats": "diffusers",
    "tensorboard.compat.tensorflow_stub.io.gfile": "",
    "torchao": "",
    "torchao.utils": "peft",
    DYNAMO: "",
    f"{DYNAMO}._trace_wrapped_higher_order_op": "transformers",
    "transformers": "diffusers",
    "transformers.quantizers.quantizer_torchao": "transformers",
    "transformers.utils": "diffusers",
    "transformers.utils.quantization_config": "diffusers",
}
"""Modules that wait, by the library that takes names from them before it knows whether it will use them."""

_waiting: dict[str, Callable[[], None]] = {}
"""What runs each module that was imported and waits."""
_lock = threading.RLock()


def install() -> None:
    """From now on these modules wait for their first use. Those that are imported already stay as they are."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def is_waiting(name: str) -> bool:
    """Whether a module is imported, and nobody has used it."""
    return name in _waiting


def use(name: str) -> None:
    """Runs a module that waits, and before it the packages that it lies in."""
    with _lock:
        parent = name.rpartition(".")[0]
        if parent in FOR_LATER:
            use(parent)
        run = _waiting.pop(name, None)
        if run is None:
            return
        try:
            run()
        except BaseException:
            _waiting[name] = run
            raise


class _Finder:
    """The first that Python asks for a module."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in OPEN or name in FOR_LATER:
            spec = PathFinder.find_spec(name, path, target)
            if spec is not None and type(spec.loader) is SourceFileLoader:
                spec.loader = _Later(spec.loader.name, spec.loader.path)
            return spec
        parent = name.rpartition(".")[0]
        if parent not in _waiting or parent in OPEN:
            return None
        use(parent)
        present = sys.modules.get(name)  # the package may have imported it itself
        if present is None:
            return None
        spec = ModuleSpec(name, _Present(present))  # type: ignore[arg-type]  # it loads; abc takes 15 ms
        vars(present)["__spec__"] = spec  # torch's modules of settings take no other attributes by setting
        return spec


class _Present:
    """Gives Python a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__spec__"] = self._spec


class _Later(SourceFileLoader):
    """Runs a module when one of its names is used."""

    def exec_module(self, module: ModuleType) -> None:
        own, importer = module.__dict__, FOR_LATER.get(self.name, "")

        def first_use(name: str) -> Any:
            if name.startswith("__") and name != "__all__":
                raise AttributeError(name)
            if self.name in _waiting:
                if self.name == DYNAMO and name in _UNCOMPILED:
                    return _UNCOMPILED[name]
                if importer and _importer() == importer:
                    return _Name(self.name, name)
            use(self.name)
            present = sys.modules.get(self.name)
            if name not in own and present is not None and present is not module:  # transformers replaces itself
                return getattr(present, name)
            if name not in own:
                raise AttributeError(f"module {self.name!r} has no attribute {name!r}")
            return own[name]

        def run() -> None:
            super(_Later, self).exec_module(module)
            if self.name == DYNAMO:
                for mark, thing in _marks:
                    own[mark](thing)

        own["__getattr__"] = first_use
        _waiting[self.name] = run


def _importer() -> str:
    """The library that asks a module for a name, beyond Python's own import."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


class _Name:
    """A class or function of a module that waits. Asking what is an instance runs no module: nothing is, so far."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _real(self) -> Any:
        use(self._module)
        return getattr(sys.modules[self._module], self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __call__(self, *values: Any, **options: Any) -> Any:
        return self._real()(*values, **options)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __instancecheck__(self, thing: object) -> bool:
        return not is_waiting(self._module) and isinstance(thing, self._real())

    def __subclasscheck__(self, kind: type) -> bool:
        return not is_waiting(self._module) and issubclass(kind, self._real())

    def __or__(self, other: Any) -> Any:
        return self._real() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._real()


_marks: list[tuple[str, Any]] = []
"""What torch's compiler will be told when it is there: (a decorator of its, the function or class)."""


def _mark(decorator: str, thing: Any) -> Any:
    _marks.append((decorator, thing))
    return thing


def _disable(function: Any = None, recursive: bool = True, **options: Any) -> Any:
    """`torch._dynamo.disable`: without a compiler the function itself."""
    if function is None:
        return functools.partial(_disable, recursive=recursive, **options)
    if not isinstance(function, FunctionType):  # modules and classes get wrappers of other kinds
        use(DYNAMO)
        return sys.modules[DYNAMO].disable(function, recursive, **options)

    @functools.cache
    def real() -> Callable[..., Any]:
        wrapped: Callable[..., Any] = sys.modules[DYNAMO].disable(function, recursive, **options)
        return wrapped

    @functools.wraps(function)
    def disabled(*values: Any, **named: Any) -> Any:
        return function(*values, **named) if DYNAMO in _waiting else real()(*values, **named)

    return disabled


_UNCOMPILED: dict[str, Callable[..., Any]] = {
    "allow_in_graph": functools.partial(_mark, "allow_in_graph"),
    "assume_constant_result": functools.partial(_mark, "assume_constant_result"),
    "disable": _disable,
    "graph_break": lambda msg="": None,
}
"""What code that nobody compiles asks of torch's compiler. Anything else runs it."""
