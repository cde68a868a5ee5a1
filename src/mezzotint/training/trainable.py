"""Selects the trained parameters by part and pattern, and checks that each trained part is updated."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from mezzotint.errors import Diverged, RecipeError
from mezzotint.settings.sections.model import ModelSettings

MAY_BE_IDLE = "~"
"""Prefix of a pattern that may match nothing."""

Agree = Callable[[int], int]
"""Combines this process's flags with those of all processes (`Runtime.agree`)."""

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_INT_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def select_trained_parameters(
    parts: Mapping[str, nn.Module], settings: ModelSettings, trainable: tuple[str, ...]
) -> dict[str, nn.Parameter]:
    """Freezes everything that the recipe does not train; returns the trained parameters by `part/parameter`.

    trainable: the parts that the family allows. `model.last_layers` freezes the first layers of text encoders,
    `model.freeze` every parameter that matches; its patterns with `!` override both. Raises RecipeError for a part that
    cannot be trained (E1021), a pattern that matches nothing (E1022), nothing left to train (E1023), dropout in a
    trained part, whose random draws would not be addressed (E1024), and layers without numbers (E1025).
    """
    for part in settings.train:
        if part not in trainable:
            raise RecipeError(f"model.train names {part!r}; this family trains {', '.join(trainable)}", code="E1021")
    trained: dict[str, nn.Parameter] = {}
    matched: set[str] = set()
    example = ""
    for part, module in parts.items():
        is_trained = part in settings.train
        module.train(is_trained)
        early = _before_last_layers(part, module, settings.last_layers) if is_trained else set()
        for name, parameter in module.named_parameters():
            full = f"{part}/{name}"
            example = example or full
            patterns = [
                pattern for pattern in settings.freeze if fnmatchcase(full, without_prefix(pattern).removeprefix("!"))
            ]
            matched.update(patterns)
            is_thawed = any(without_prefix(pattern).startswith("!") for pattern in patterns)
            parameter.requires_grad_(is_trained and (is_thawed or not (patterns or name in early)))
            if parameter.requires_grad:
                trained[full] = parameter
        if is_trained:
            _refuse_dropout(part, module)
    for pattern in settings.freeze:
        if pattern not in matched and not pattern.startswith(MAY_BE_IDLE):
            raise RecipeError(
                f"model.freeze: {pattern!r} matches no parameter; names look like {example!r}", code="E1022"
            )
    if not trained:
        raise RecipeError("model.train and model.freeze leave nothing to train", code="E1023")
    return trained


def without_prefix(pattern: str) -> str:
    """The pattern without the prefix `MAY_BE_IDLE`."""
    return pattern.removeprefix(MAY_BE_IDLE)


def find_unmatched_patterns(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """The patterns with the prefix `MAY_BE_IDLE` that match nothing, without the prefix. names: of all parameters."""
    lenient = [without_prefix(pattern) for pattern in patterns if pattern.startswith(MAY_BE_IDLE)]
    return [pattern for pattern in lenient if not any(fnmatchcase(name, pattern.removeprefix("!")) for name in names)]


def _before_last_layers(part: str, module: nn.Module, count: int | None) -> set[str]:
    """The names before the last `count` of a text encoder's numbered layers; empty if it has no more layers."""
    if count is None or not part.startswith("text_encoder"):
        return set()
    names = [name for name, _ in module.named_parameters()]
    numbers = [int(layer[1]) if (layer := _LAYER.search(name)) else -1 for name in names]
    layers = max(numbers, default=-1) + 1
    if not layers:
        raise RecipeError(
            f"model.last_layers: the parameters of {part} are not numbered by layers; use model.freeze instead",
            code="E1025",
        )
    return set(names[: numbers.index(layers - count)]) if count < layers else set()


def _refuse_dropout(part: str, module: nn.Module) -> None:
    for name, child in module.named_modules():
        rate = child.p if isinstance(child, nn.Dropout) else vars(child).get("dropout", 0.0)
        if isinstance(rate, float) and rate > 0:
            raise RecipeError(
                f"{part}/{name} has dropout {rate:g}; a trained part must have none, because its random draws are not "
                "reproducible: set it to 0 in the model's config.json",
                code="E1024",
            )


class UpdateCheck:
    """Detects a trained part that gets no gradient or does not change over the first three applied updates.

    Keeps one checksum per part on the device; the host reads them once, after the third update.
    """

    updates = 3
    """Number of applied updates with a rate above 0 after which a part must have changed."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._before = checksums(weights)
        self._moved_at: dict[str, int] = dict.fromkeys(self._before, 0)
        self._applied = 0

    def check_gradients(self, trained: Mapping[str, nn.Parameter], agree: Agree = lambda flags: flags) -> None:
        """Called after the first backward pass. Raises Diverged E1601, which names a part without any gradient."""
        reached = {name.split("/")[0] for name, p in trained.items() if p.grad is not None}
        part = _first_without(sorted({name.split("/")[0] for name in trained}), reached, agree)
        if part is not None:
            raise Diverged(
                f"{part} is trained but receives no gradient: it does not affect the loss; "
                "train another part or unfreeze more of it",
                code="E1601",
            )

    def count_update(self, rates: Mapping[str, float], base: Mapping[str, float]) -> bool:
        """Counts an applied update; returns whether every part has had `updates` of them. rates: of this update, by
        part. base: peak rate of each part; parts with 0 are not waited for."""
        self._applied += 1
        for part in self._moved_at:
            self._moved_at[part] += rates.get(part, 0.0) > 0.0
        waited_for = [n for part, n in self._moved_at.items() if base.get(part, 0.0) > 0.0]
        return self._applied >= self.updates and all(n >= self.updates for n in waited_for)

    def check_movement(
        self, weights: Mapping[str, Tensor], rates: Mapping[str, float], agree: Agree = lambda flags: flags
    ) -> None:
        """Called after the third applied update. Raises Diverged E1602, which names a part whose weights have not
        changed.

        rates: the highest rate of each part so far; the message names a rate of 0 as the cause.
        """
        after = checksums(weights)
        moved = {part for part, before in self._before.items() if not torch.equal(before, after[part])}
        part = _first_without(list(self._before), moved, agree)
        if part is not None:
            reason = (
                "its learning rate was always 0; set optim.lr or optim.part_lr above 0"
                if rates.get(part, 0.0) == 0.0
                else f"its learning rate reached {rates[part]:g}, which may be too small for the dtype of the weights"
            )
            raise Diverged(f"{part} has not changed in {self.updates} updates: {reason}", code="E1602")


def _first_without(parts: Sequence[str], have: Collection[str], agree: Agree) -> str | None:
    """The first part that is in `have` on no process."""
    flags = agree(sum(1 << number for number, part in enumerate(parts) if part in have))
    return next((part for number, part in enumerate(parts) if not flags >> number & 1), None)


def checksums(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One number per part that changes when any bit of its weights does (except for rare collisions): () int64, on the
    device."""
    totals: dict[str, Tensor] = {}
    for number, (name, tensor) in enumerate(weights.items()):
        part = name.split("/")[0]
        bits = tensor.detach().contiguous().view(_INT_OF_SIZE[tensor.element_size()])
        value = bits.sum(dtype=torch.int64) * (2 * number + 1)
        totals[part] = totals[part] + value if part in totals else value
    return totals
