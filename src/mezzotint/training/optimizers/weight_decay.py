"""Named rules for the parameters that weight decay leaves out: `@norm-and-bias`, and those that modules of the group
`mezzotint.decay_rules` define with `undecayed(part, names)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from torch import nn

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.settings.base import with_values
from mezzotint.settings.optimizers.base import Optimizer
from mezzotint.settings.sections.optim import OptimSettings

FOLDER = "training/decay_rules"
_NORM_AND_BIAS = "@norm-and-bias"


def of_adapter(optim: OptimSettings) -> OptimSettings:
    """The section where an adapter is trained, which has no norms and biases: what weight decay leaves out of a model's
    own parameters says nothing of it."""
    plain = {part: rule.with_undecayed(()) for part, rule in optim.part_optimizer.items()}
    return with_values(optim, {"optimizer": optim.optimizer.with_undecayed(()), "part_optimizer": plain})


def resolved(optim: OptimSettings, parts: Mapping[str, nn.Module], trained: Sequence[str]) -> OptimSettings:
    """The section with the named rules in `no_decay` replaced by the parameters that they mean, `part/parameter`.

    parts: the networks by name. trained: the parameters that move; others are never named. Raises RecipeError E1078 for
    a rule that is not known, or whose names this network has not.
    """
    others = [name for name in trained if name.split("/")[0] not in optim.part_optimizer]
    by_part = {
        part: _resolved(rule, parts, [name for name in trained if name.startswith(f"{part}/")])
        for part, rule in optim.part_optimizer.items()
    }
    return with_values(optim, {"optimizer": _resolved(optim.optimizer, parts, others), "part_optimizer": by_part})


def _resolved(rule: Optimizer, parts: Mapping[str, nn.Module], trained: Sequence[str]) -> Optimizer:
    if not any(word.startswith("@") for word in rule.undecayed):
        return rule
    names: list[str] = []
    for word in rule.undecayed:
        names += _named(word, parts, trained) if word.startswith("@") else [word]
    return rule.with_undecayed(dict.fromkeys(names))


def _named(word: str, parts: Mapping[str, nn.Module], trained: Sequence[str]) -> list[str]:
    known = (_NORM_AND_BIAS, *(f"@{name}" for name in registry.names(FOLDER)))
    if word not in known:
        raise RecipeError(
            f"optim.optimizer.no_decay: {word!r} is no rule; known: {', '.join(known)}, and patterns such as '*.bias'",
            code="E1078",
        )
    spared: set[str] = set()
    for part in dict.fromkeys(name.split("/")[0] for name in trained):
        spared |= {f"{part}/{name}" for name in _undecayed(word, part, parts[part])}
    return [name for name in trained if name in spared]


def _undecayed(word: str, part: str, module: nn.Module) -> Iterator[str]:
    if word == _NORM_AND_BIAS:
        return _norm_and_bias(module)
    undecayed: Iterator[str] = registry.find(FOLDER, word.removeprefix("@")).undecayed(
        part, [name for name, _ in module.named_parameters()]
    )
    return undecayed


def _norm_and_bias(module: nn.Module) -> Iterator[str]:
    """All that norm layers hold themselves, by the names of their classes, and every bias."""
    for where, child in module.named_modules():
        is_norm = "Norm" in type(child).__name__
        for name, _ in child.named_parameters(recurse=False):
            if is_norm or name.endswith("bias"):
                yield f"{where}.{name}" if where else name
