"""Adapter files for the commands: reading them for their base model, whose layers determine their names, and writing
them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from mezzotint import durable, registry
from mezzotint.adapters import files, header, writing
from mezzotint.adapters.extraction import RankRule, Remainder
from mezzotint.adapters.files import Adapter, Layout
from mezzotint.adapters.names import LayerName, LayerNames
from mezzotint.adapters.networks import file_weights
from mezzotint.adapters.trainers import find_spelling
from mezzotint.assets import MODELS
from mezzotint.errors import WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.reading.read import resolve_path
from mezzotint.settings.sections.adapter import AdapterSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE
from mezzotint.tasks.weights.args import require_free
from mezzotint.weights import merge
from mezzotint.weights.files import pickled, tensor_files
from mezzotint.weights.folder.components import DTYPES, DTypeName
from mezzotint.weights.model_files import ModelFiles
from mezzotint.weights.single_file import modelspec, planned
from mezzotint.weights.single_file.single_file import family_at


class TensorReader(Protocol):
    """Tensors by the names of a component's files."""

    def read(self, names: Collection[str]) -> dict[str, Tensor]: ...


@dataclass(frozen=True, slots=True)
class _LoadedTensors:
    tensors: Mapping[str, Tensor]

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        return {name: self.tensors[name] for name in names if name in self.tensors}


@dataclass(frozen=True)
class AdapterBase:
    """The base model of adapters: a folder, a file, or the name of a shipped model. settings: with its path."""

    settings: ModelSettings

    @classmethod
    def at(cls, path: Path, config: Path | None = None) -> AdapterBase:
        """The model at a path, identified by its configurations. Raises WeightsError E1401, E1442 and as reading
        headers does."""
        model_path = path if path.exists() else resolve_path(path, None, shipped=MODELS)
        family = family_at(model_path)
        if family is None:
            raise WeightsError(
                f"{model_path}: is not a known model; give the folder or file of the complete model that the adapter "
                "is for, or the name of a shipped one (`mezzotint ls models`)",
                code="E1442",
            )
        return cls(ModelSettings(path=model_path, family=family, config=config))

    @property
    def path(self) -> Path:
        """Its path."""
        return self.settings.path

    @property
    def family(self) -> type[ModelFamily]:
        """Its family."""
        family: type[ModelFamily] = registry.find("families", self.settings.family).Family
        return family

    @property
    def is_stable(self) -> bool:
        """Whether it is a Stable Diffusion model, whose tensors `weights.merge` reads."""
        return bool(self.family.spec.layout)

    @cached_property
    def model_files(self) -> ModelFiles:
        """Its files opened by configurations only. Raises WeightsError."""
        return self.family.files.from_configs(self.settings)

    @cached_property
    def names(self) -> LayerNames:
        """The names of its layers. Raises WeightsError."""
        return LayerNames.of(self.model_files)

    def weights(self, store: Path) -> Mapping[str, TensorReader]:
        """Readers of its tensors, by component. store: for copies of pickles. Raises WeightsError."""
        if self.is_stable:
            return merge.open_base(self.path, config=self.settings.config, store=store).source.components
        opened, folders = self.family.files.of(self.settings), self.family.spec.folders
        parts = [part for part in opened.spec.trainable if folders[part] in self.names.shapes]
        return {folders[part]: _LoadedTensors(_by_file_names(opened.network(part))) for part in parts}

    def read(self, path: Path, store: Path) -> Adapter:
        """Reads an adapter for it; a pickled one in a sandboxed process. Raises WeightsError as `files.read`."""
        return files.read(path, self.names, store)


def _by_file_names(network: nn.Module) -> dict[str, Tensor]:
    """A network's tensors, and its weights also under the names in its files, which may differ."""
    return network.state_dict() | {name: p.detach() for name, p in file_weights(network).items()}


def base_of(path: Path | None, verb: str, config: Path | None) -> AdapterBase:
    """The model of `--base`. Raises WeightsError E1441 without it."""
    if path is None:
        raise WeightsError(
            f"mezzotint {verb}: the layers of an adapter are named after those of its model; add "
            "--base=MODEL, a folder, a file or the name of a shipped model",
            code="E1441",
        )
    return AdapterBase.at(path, config)


def is_adapter(path: Path, store: Path) -> bool:
    """Whether a path is an adapter file, or a folder with one, by tensor names. Raises WeightsError for a file that
    cannot be read."""
    file = files.files_at(path)[0]
    return file.is_file() and files.is_adapter(tensor_files.read_header(pickled.readable(file, store)))


def portions(layers: Sequence[LayerName], names: LayerNames) -> Iterator[tuple[str, list[LayerName]]]:
    """Groups layers of the same component into portions of about `planned.CHUNK` bytes in float32."""
    portion: list[LayerName] = []
    num_bytes = 0
    for layer in layers:
        size = 4 * torch.Size(names.weights[layer]).numel()
        if portion and (num_bytes + size > planned.CHUNK or layer.component != portion[0].component):
            yield portion[0].component, portion
            portion, num_bytes = [], 0
        portion, num_bytes = [*portion, layer], num_bytes + size
    if portion:
        yield portion[0].component, portion


def rule(line: CommandLine) -> RankRule:
    """The rule from `--rank`, `--convolutions` and one of `--share`, `--sv-ratio`, `--sv-cumulative`. Raises
    RecipeError E1012."""
    rank, share = line.get_integer("--rank", 1), line.get_float("--share")
    ratio, cumulative = line.get_float("--sv-ratio"), line.get_float("--sv-cumulative")
    rules = [name for name in ("--share", "--sv-ratio", "--sv-cumulative") if name in line]
    if rank is None:
        raise line.usage_error(
            "--rank=N is required: the rank of the new adapter, or with --share, --sv-ratio or --sv-cumulative the "
            "highest rank of a layer"
        )
    if len(rules) > 1:
        raise line.usage_error(
            f"{' and '.join(rules)} are different rules for the rank of a layer; give only one of them"
        )
    if share is not None and not 0 <= share < 1:
        raise line.usage_error(
            f"--share is the share of each change that may be left out, from 0 to below 1, got {share:g}"
        )
    if ratio is not None and ratio < 1:
        raise line.usage_error(
            f"--sv-ratio=R keeps singular values of at least the largest / R; R is 1 or more, got {ratio:g}"
        )
    if cumulative is not None and not 0 < cumulative <= 1:
        raise line.usage_error(
            f"--sv-cumulative is the share of the singular values' sum to keep, above 0 to 1, got {cumulative:g}"
        )
    return RankRule(rank, share or 0.0, line.get_integer("--convolutions", 1), ratio, cumulative)


def remainders(rows: Sequence[Remainder]) -> Iterator[str]:
    """Lines that report the share left out of each layer, the largest first, and of all."""
    for row in sorted(rows, key=lambda row: (-row.share, str(row.layer))):
        yield f"{row.layer}: rank {row.rank}, norm {row.norm:.4g}, left out {row.share:.2%}"
    ranks = sorted({row.rank for row in rows})
    total_norm = sum(row.norm**2 for row in rows) ** 0.5
    lost_norm = sum((row.norm * row.share) ** 2 for row in rows) ** 0.5
    yield (
        f"{len(rows)} layers, rank {' to '.join(map(str, dict.fromkeys((ranks[0], ranks[-1]))))}; of the whole change "
        f"(norm {total_norm:.4g}) {lost_norm / total_norm if total_norm else 0:.2%} is left out"
    )


def target(line: CommandLine) -> Path:
    """The last argument, the adapter file to write. Raises RecipeError E1012 for another suffix, WeightsError E1410 if
    it exists."""
    path = Path(line.plain[-1]).expanduser()
    if path.suffix != ".safetensors":
        raise line.usage_error(f"an adapter is written as a file that ends in .safetensors, got {path.name}")
    require_free(path, line.command.name, replaces=REPLACE.name in line)
    return path


def layout(line: CommandLine, otherwise: Layout) -> str:
    """The value of `--layout`, or `otherwise`."""
    return line.get("--layout") or otherwise


def usual_layout(base: AdapterBase) -> Layout:
    """The layout that most programs read for adapters of such a model."""
    return "kohya" if base.is_stable else "diffusers"


def write(
    path: Path, adapter: Adapter, base: AdapterBase, layout: str, *, dtype: DTypeName | None = None,
    before: Mapping[str, str] | None = None, fingerprints: Mapping[str, str] | None = None, replaces: bool = False,
) -> Iterator[str]:  # fmt: skip
    """Writes an adapter; yields lines that report the result.

    layout: the value of `--layout`. before: metadata to keep, such as those of the source file. fingerprints: of the
    base. replaces: whether to overwrite the files of two denoisers, whose names derive from `path`. Raises as
    `writing.write`, WeightsError E1410.
    """
    description = base.model_files.description(path.stem)
    metadata = header.entries(adapter, AdapterSettings(), fingerprints or {}, description, {"output_name": path.stem})
    metadata |= modelspec.with_open_hashes(before or {})
    kind = None if dtype is None else DTYPES[dtype]
    for file in writing.files_for(adapter, path, base.names).values():
        if file != path:
            durable.refuse_taken(file, replaces=replaces)
    spelling = find_spelling(layout, base.settings.family)
    written = writing.write(
        adapter, path, base.names, spelling, metadata=metadata, dtype=kind,
        seal=modelspec.seal if modelspec.is_open(metadata) else None,
    )  # fmt: skip
    parts = ", ".join(f"{len(adapter.of(component))} of {component}" for component in adapter.components)
    size = sum(file.stat().st_size for file in written.files)
    yield f"{len(adapter.modules)} layers ({parts}), {size:,} bytes in the layout of {layout}"
    if written.files != (path,):
        yield f"one file for each denoiser: {', '.join(file.name for file in written.files)}"
    yield from written.notes
