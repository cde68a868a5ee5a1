"""`mezzotint check-adapter FILE [--base=MODEL]`: reports which programs read an adapter file, how many of its layers,
and at what strength."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from mezzotint import registry
from mezzotint.adapters import files, readers
from mezzotint.adapters.names import LayerNames
from mezzotint.adapters.readers import Verdict
from mezzotint.errors import WeightsError, escape_line
from mezzotint.settings.families.base import ShippedConfig, specs
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.weights.adapter_files import AdapterBase
from mezzotint.tasks.weights.args import config
from mezzotint.weights.files import pickled, tensor_files
from mezzotint.weights.folder.model_folder import open_folder, shipped_folder
from mezzotint.weights.single_file.writing import describe_folder


@dataclass(frozen=True)
class Model:
    """The layers that a file is compared with. numbered: whether block numbers are those of the file's model.
    is_full_size: whether the layers are those of the published models. architectures: its names in ModelSpec
    headers."""

    family: str
    called: str
    names: LayerNames
    numbered: bool
    is_full_size: bool = False
    architectures: frozenset[str] = frozenset()


def run(arguments: Sequence[str]) -> int:
    """`mezzotint check-adapter FILE [--base=MODEL]`. Returns 0.

    Raises RecipeError E1012 for unknown arguments; WeightsError E1430 for a file without an adapter, E1431 for one of
    an unknown model, E1442 for a base that is not a model, and as `files.read` with a base.
    """
    line = command_line.parse(arguments, "check-adapter")
    base = line.get_path("--base")
    path = Path(line.plain[0]).expanduser()
    for file in files.files_at(path):
        source = pickled.readable(file)
        tensors, metadata = tensor_files.read(source), tensor_files.read_metadata(source)
        if not files.is_adapter(tensors):
            raise WeightsError(f"{file}: has no tensors of an adapter", code="E1430")
        if base is None:
            models = guess(file, tensors, metadata)
        else:
            model_of_base = AdapterBase.at(base, config(line))
            files.read(file, model_of_base.names)
            models = [Model(model_of_base.family.spec.name, str(base), model_of_base.names, True)]
        for model in models:
            for text in describe(file, tensors, metadata, model):
                print(escape_line(text))
    for reader in readers.load():
        print(f"  ({reader.label}: {reader.basis})")
    return 0


def guess(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> list[Model]:
    """The model whose layers a file names, of the family in its ModelSpec header if there is one; several if they have
    the same names. Raises WeightsError E1431 for an unknown model."""
    stems = {layer.name for layer in readers.layers_of(tensors)}

    def count_matches(model: Model) -> tuple[int, int]:
        lookup = model.names.lookup(model.names.denoisers[0])
        layers = {readers.mask_block_numbers(name) for name in lookup}
        matches = sum(readers.mask_block_numbers(stem) in layers for stem in stems)
        return matches, len(stems & lookup.keys()) if model.is_full_size else matches

    scores = [(count_matches(model), model) for model in _list_models()]
    named = metadata.get("modelspec.architecture", "").partition("/")[0]
    scores = [entry for entry in scores if named in entry[1].architectures and entry[0][0]] or scores
    best = max(score for score, _ in scores)
    if best[0] == 0:
        raise WeightsError(
            f"{file}: its layers ({tensor_files.summary(sorted(stems), 2)}) are not those of a known model; give its "
            "model with --base=MODEL",
            code="E1431",
        )
    return [model for score, model in scores if score == best]


def _list_models() -> Iterator[Model]:
    for spec in specs():
        family = registry.find("families", spec.name).Family
        if spec.shipped:  # families whose layers differ only in their block numbers
            names = AdapterBase.at(Path(spec.shipped[0].name)).names
            yield Model(spec.name, spec.label, names, False, True, frozenset(map(_architecture, spec.shipped)))
        else:
            yield Model(spec.name, spec.label, LayerNames.of(family.files.tiny()), False)


def _architecture(config: ShippedConfig) -> str:
    return describe_folder(open_folder(shipped_folder(config.name)), config.prediction, "").architecture


def describe(file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], model: Model) -> Iterator[str]:
    """A line about the file's content, then one for each reader."""
    kinds = Counter(_kind(layer.tensors) for layer in readers.layers_of(tensors))
    layers = ", ".join(f"{count} layers of {kind}" for kind, count in kinds.most_common())
    yield f"{file}: {layers}, {files.layout_of(tensors)} layout, for {model.called}"
    for reader in readers.load():
        verdict = readers.judge(reader, tensors, metadata, model.names, model.family, numbered=model.numbered)
        yield f"  {reader.label:<10} {_sentence(verdict, model)}"


def _kind(tensors: Mapping[str, Tensor]) -> str:
    if "dora_scale" in tensors:
        return "DoRA"
    starts = {"lora_": "LoRA", "hada_": "LoHa", "lokr_": "LoKr"}
    return next(
        (kind for start, kind in starts.items() if any(leaf.startswith(start) for leaf in tensors)), "unknown kind"
    )


def _sentence(verdict: Verdict, model: Model) -> str:
    if model.family not in verdict.reader.denoiser:
        return f"does not support {model.called}, or its support is unknown"
    share = f"{verdict.accepted} of {verdict.layers} layers"
    if verdict.is_right:
        return f"{share}, strength as trained"
    if not verdict.accepted:
        return f"{share} (such as {verdict.refused[0]})"
    strengths = " and ".join(f"{strength:g}" for strength in verdict.strengths)
    times = "strength as trained" if verdict.strengths == (1.0,) else f"{strengths} times the trained strength"
    return f"{share}, {times}" + (f"; not {verdict.refused[0]}" if verdict.refused else "")
