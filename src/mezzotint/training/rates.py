"""Which entry of `optim.part_lr` sets the learning rate of each parameter, and which parameters a rate of 0 freezes.

An entry is the name of a part, or `PART/PATTERN`. A pattern comes before the part's rate; of several that match, the
last one wins. Patterns are those of `model.freeze`: `*` and `?`, and after `~` one that may match nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from mezzotint.adapters.trained import layer_of
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.trainable import MAY_BE_IDLE, without_prefix

Names = Mapping[str, Sequence[str]]
"""By parameter or layer, `part/…`, the names that patterns are matched against."""


def names_to_match(parameters: Iterable[str], adapted_parts: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """A parameter matches by its own name and by its layer's; that of an adapter only by the layer's. parameters: as
    `part/parameter`. adapted_parts: the parts whose parameters are those of an adapter."""
    return {
        name: (layer_of(name),) if name.split("/")[0] in adapted_parts else (name, name.rpartition(".")[0])
        for name in parameters
    }


def names_of_layers(layers: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For layers that may get an adapter, as `part/layer`."""
    return {layer: (layer,) for layer in layers}


def find_keys(names: Names, optim: OptimSettings) -> dict[str, str]:
    """The key of `optim.part_lr` whose rate each parameter has; its part if no pattern matches."""
    patterns = {part: optim.rate_patterns(part) for part in {name.split("/")[0] for name in names}}
    return {name: _last_match(patterns[name.split("/")[0]], matched) for name, matched in names.items()}


def find_frozen(names: Names, optim: OptimSettings) -> set[str]:
    """The parameters, or layers, that are frozen because their rate is 0, in parts that have patterns. Raises
    RecipeError E1022 for a pattern that matches nothing, E1023 if nothing is left of a part."""
    _refuse_unmatched(names, optim)
    keys = find_keys(names, optim)
    frozen = {name for name, key in keys.items() if optim.rate_patterns(name.split("/")[0]) and not optim.rate_of(key)}
    emptied = {name.split("/")[0] for name in names} - {name.split("/")[0] for name in keys.keys() - frozen}
    if emptied:
        part = min(emptied)
        raise RecipeError(
            f"optim.part_lr: every rate of {part} is 0, which leaves nothing of it to train; set one above 0, or "
            f"remove {part} from model.train",
            code="E1023",
        )
    return frozen


def _last_match(patterns: Sequence[str], names: Sequence[str]) -> str:
    matching = [key for key in patterns if any(fnmatchcase(name, without_prefix(key)) for name in names)]
    return matching[-1] if matching else names[0].split("/")[0]


def _refuse_unmatched(names: Names, optim: OptimSettings) -> None:
    every = {name: None for matched in names.values() for name in matched}
    for key in optim.part_lr:
        if "/" in key and not key.startswith(MAY_BE_IDLE) and not any(fnmatchcase(name, key) for name in every):
            advice = did_you_mean(key, every, f"names look like {next(iter(every))}" if every else "")
            raise RecipeError(f"optim.part_lr: {key!r} matches nothing that is trained; {advice}", code="E1022")
