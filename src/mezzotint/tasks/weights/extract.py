"""`mezzotint extract BASE TUNED DESTINATION --rank=N`: extracts the difference of two models as an adapter, by
singular value decomposition.

An adapter cannot contain biases, norms and embedding tables: differences in them are reported and left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.adapters import extraction
from mezzotint.adapters.extraction import RankRule, Remainder
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.names import LayerName
from mezzotint.errors import WeightsError, escape_line
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.weights import adapter_files
from mezzotint.tasks.weights.adapter_files import AdapterBase, TensorReader
from mezzotint.tasks.weights.args import config, dtype, store_beside
from mezzotint.weights import merge

Pair = tuple[Tensor, Tensor]


def run(arguments: Sequence[str]) -> int:
    """`mezzotint extract BASE TUNED DESTINATION --rank=N [switches]`. Returns 0.

    Raises RecipeError E1012 for unknown arguments; WeightsError as reading models does, E1410 for a destination that
    exists, E1444 for models without a difference that an adapter can contain, E1451 and E1452 for different kinds of
    models.
    """
    line = command_line.parse(arguments, "extract")
    rule, target = adapter_files.rule(line), adapter_files.target(line)
    first, second = (Path(argument).expanduser() for argument in line.plain[:2])
    base = AdapterBase.at(first, config(line))
    layout = adapter_files.layout(line, adapter_files.usual_layout(base))
    print(escape_line(f"{second} − {base.path} → {target}"))
    with store_beside(target) as store:
        before, after = base.weights(store), _open_tuned(second, base, store)
        adapter, rows = _extract(base, before, after, rule)
        if not rows:
            raise WeightsError(
                f"{second}: has the same layers as {base.path}, so there is nothing to extract; check the paths",
                code="E1444",
            )
        fingerprints = {part: base.family.files.of(base.settings).fingerprint(part) for part in _parts(base, adapter)}
        lines = [*adapter_files.remainders(rows), *_other_differences(base, before, after)]
    # written before anything is printed, so that a pipe into `head` does not prevent it
    lines += adapter_files.write(target, adapter, base, layout, dtype=dtype(line) or "fp32", fingerprints=fingerprints)
    for text in lines:
        print(escape_line(f"  {text}"))
    return 0


def _open_tuned(path: Path, base: AdapterBase, store: Path) -> Mapping[str, TensorReader]:
    """Readers of the tensors of the second model, complete or partial."""
    if base.is_stable:
        first = merge.open_base(base.path, config=base.settings.config, store=store)
        return merge.open_other(path, first, store=store).components
    other = AdapterBase.at(path, base.settings.config)
    if other.family is not base.family or other.names.shapes != base.names.shapes:
        raise WeightsError(f"{path}: is a model of another family or size than {base.path}", code="E1452")
    return other.weights(store)


def _extract(
    base: AdapterBase, before: Mapping[str, TensorReader], after: Mapping[str, TensorReader], rule: RankRule
) -> tuple[Adapter, list[Remainder]]:
    modules: dict[LayerName, AdapterModule] = {}
    rows: list[Remainder] = []
    layers = [layer for layer in base.names.weights if layer.component in before and layer.component in after]
    for component, portion in adapter_files.portions(layers, base.names):
        pairs = _read([f"{layer.path}.weight" for layer in portion], before[component], after[component])
        extracted, remainders = extraction.extract_lora(
            ((layer, *pairs[name]) for layer in portion if (name := f"{layer.path}.weight") in pairs), rule
        )
        modules |= extracted.modules
        rows += remainders
    return Adapter(modules), rows


def _read(names: Sequence[str], before: TensorReader, after: TensorReader) -> dict[str, Pair]:
    """Tensors that both models have. Where data types differ, the wider is rounded to the narrower first, so that a
    copy in half precision counts as the same model."""
    second = after.read(names)
    first = before.read(list(second))
    return {name: _round_alike(first[name], tensor) for name, tensor in second.items() if name in first}


def _round_alike(first: Tensor, second: Tensor) -> Pair:
    if first.dtype == second.dtype or first.element_size() == second.element_size():
        return first.float(), second.float()
    narrow = min(first.dtype, second.dtype, key=lambda dtype: dtype.itemsize)
    return first.to(narrow).float(), second.to(narrow).float()


def _other_differences(
    base: AdapterBase, before: Mapping[str, TensorReader], after: Mapping[str, TensorReader]
) -> Iterator[str]:
    """Lines that report differences in tensors other than layers."""
    layers = {(layer.component, f"{layer.path}.weight") for layer in base.names.weights}
    for component, shapes in base.names.shapes.items():
        rest = [name for name in shapes if (component, name) not in layers]
        if component not in before or component not in after:
            yield f"{component}: not in both models"
            continue
        pairs = _read(rest, before[component], after[component])
        differing = [name for name, (a, b) in pairs.items() if not torch.equal(a, b)]
        if differing:
            norm = sum(float((pairs[name][1] - pairs[name][0]).square().sum()) for name in differing) ** 0.5
            yield (
                f"{component}: {len(differing)} biases, norms and tables differ (norm {norm:.4g}, {differing[0]}), "
                "which an adapter cannot contain"
            )


def _parts(base: AdapterBase, adapter: Adapter) -> list[str]:
    return [part for part, folder in base.family.spec.folders.items() if folder in adapter.components]
