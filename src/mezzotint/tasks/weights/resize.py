"""`mezzotint resize ADAPTER DESTINATION --base=MODEL --rank=N`: converts an adapter of any kind to a LoRA of another
rank, by singular value decomposition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mezzotint.adapters import extraction
from mezzotint.adapters.extraction import Remainder
from mezzotint.adapters.files import Adapter
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.names import LayerName
from mezzotint.errors import escape_line
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.weights import adapter_files
from mezzotint.tasks.weights.args import config, dtype, store_beside
from mezzotint.weights.folder.components import DTYPES, DTypeName


def run(arguments: Sequence[str]) -> int:
    """`mezzotint resize ADAPTER DESTINATION --base=MODEL --rank=N [switches]`. Returns 0.

    Raises RecipeError E1012 for unknown arguments; WeightsError as `files.read`, E1410 for a destination that exists,
    E1441 and E1442 for a missing base.
    """
    line = command_line.parse(arguments, "resize")
    rule, target = adapter_files.rule(line), adapter_files.target(line)
    source = Path(line.plain[0]).expanduser()
    base = adapter_files.base_of(line.get_path("--base"), "resize", config(line))
    print(escape_line(f"{source} → {target}"))
    with store_beside(target) as store:
        adapter = base.read(source, store)
        for note in adapter.notes:
            print(f"  {note}")
        modules: dict[LayerName, AdapterModule] = {}
        rows: list[Remainder] = []
        dora = [layer for layer, module in adapter.modules.items() if module.needs_weight]
        weights = base.weights(store) if dora else {}
        layers = sorted(adapter.modules, key=lambda layer: layer.component)
        for component, portion in adapter_files.portions(layers, base.names):
            names = [f"{layer.path}.weight" for layer in portion if adapter.modules[layer].needs_weight]
            base_weights = weights[component].read(names) if names else {}
            part = Adapter({layer: adapter.modules[layer] for layer in portion})
            of_base = {
                LayerName(component, name.removesuffix(".weight")): tensor for name, tensor in base_weights.items()
            }
            resized, remainders = extraction.resize_adapter(part, rule, of_base, base.names.weights)
            modules |= resized.modules
            rows += remainders
    lines = list(adapter_files.remainders(rows))
    if dora:
        lines.append(f"{len(dora)} layers were DoRA; they are now a LoRA that fits only this base")
    metadata = {key: value for key, value in adapter.metadata.items() if not key.startswith("ss_network_")}
    # written before anything is printed, so that a pipe into `head` does not prevent it
    lines += adapter_files.write(
        target, Adapter(modules), base, adapter_files.layout(line, adapter.layout), before=metadata,
        dtype=dtype(line) or _type(adapter),
    )  # fmt: skip
    for text in lines:
        print(escape_line(f"  {text}"))
    return 0


def _type(adapter: Adapter) -> DTypeName:
    """The most frequent data type of an adapter's tensors."""
    counts = Counter(tensor.dtype for module in adapter.modules.values() for tensor in module.tensors.values())
    common = counts.most_common(1)[0][0]
    return next((name for name, dtype in DTYPES.items() if dtype == common), "fp32")
