"""Named rules for parameters without weight decay: `@norm-and-bias`, and those that modules of the group
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
    """The section for adapter training, without the `no_decay` rules: they are for a model's own parameters, and an
    adapter has no norms and biases."""
    plain = {part: rule.with_no_decay(()) for part, rule in optim.part_optimizer.items()}
    return with_values(optim, {"optimizer": optim.optimizer.with_no_decay(()), "part_optimizer": plain})


def resolve_no_decay(optim: OptimSettings, parts: Mapping[str, nn.Module], trained: Sequence[str]) -> OptimSettings:
    """The section with the named rules in `no_decay` replaced by the parameters that match, `part/parameter`.

    parts: the networks by name. trained: the trained parameters; others are never included. Raises RecipeError E1078
    for an unknown rule, or one whose names this network does not have.
    """
    others = [name for name in trained if name.split("/")[0] not in optim.part_optimizer]
    by_part = {
        part: _resolve(rule, parts, [name for name in trained if name.startswith(f"{part}/")])
        for part, rule in optim.part_optimizer.items()
    }
    return with_values(optim, {"optimizer": _resolve(optim.optimizer, parts, others), "part_optimizer": by_part})


def _resolve(rule: Optimizer, parts: Mapping[str, nn.Module], trained: Sequence[str]) -> Optimizer:
    if not any(pattern.startswith("@") for pattern in rule.no_decay_patterns):
        return rule
    names: list[str] = []
    for pattern in rule.no_decay_patterns:
        names += _matching_names(pattern, parts, trained) if pattern.startswith("@") else [pattern]
    return rule.with_no_decay(dict.fromkeys(names))


def _matching_names(rule: str, parts: Mapping[str, nn.Module], trained: Sequence[str]) -> list[str]:
    rules = (_NORM_AND_BIAS, *(f"@{name}" for name in registry.names(FOLDER)))
    if rule not in rules:
        raise RecipeError(
            f"optim.optimizer.no_decay: unknown rule {rule!r}; use {', '.join(rules)}, or a pattern such as '*.bias'",
            code="E1078",
        )
    matching: set[str] = set()
    for part in dict.fromkeys(name.split("/")[0] for name in trained):
        matching |= {f"{part}/{name}" for name in _list_undecayed(rule, part, parts[part])}
    return [name for name in trained if name in matching]


def _list_undecayed(rule: str, part: str, module: nn.Module) -> Iterator[str]:
    if rule == _NORM_AND_BIAS:
        return _norm_and_bias(module)
    undecayed: Iterator[str] = registry.find(FOLDER, rule.removeprefix("@")).undecayed(
        part, [name for name, _ in module.named_parameters()]
    )
    return undecayed


def _norm_and_bias(module: nn.Module) -> Iterator[str]:
    """The parameters of norm layers, which are recognised by class name, and every bias."""
    for prefix, child in module.named_modules():
        is_norm = "Norm" in type(child).__name__
        for name, _ in child.named_parameters(recurse=False):
            if is_norm or name.endswith("bias"):
                yield f"{prefix}.{name}" if prefix else name
