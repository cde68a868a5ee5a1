"""Overlays files on a model as it is opened: tensors of the files in `model.over` replace the model's, read tensor by
tensor; the last file that has a tensor wins. `mezzotint merge` writes the same to a file."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.weights.files import fingerprint
from mezzotint.weights.files.tensor_files import TensorInfo
from mezzotint.weights.merge import Merge, open_base, open_other
from mezzotint.weights.single_file.match_tensors import ModelTensors


@dataclass(frozen=True)
class Overlay:
    """The model `base` with files over it. config: for a model in one file, the folder of its configurations."""

    base: Path
    over: tuple[Path, ...]
    config: Path | None = None

    @cached_property
    def merge(self) -> Merge:
        """Base and files, opened by their headers. Raises WeightsError as `open_base` and `open_other` do."""
        with torch.device("cpu"):  # `check` opens models on the meta device
            base = open_base(self.base, config=self.config)
            return Merge(base, [open_other(path, base) for path in self.over])

    def require_fit(self) -> None:
        """Raises WeightsError when the files do not fit the model. Reads headers only."""
        assert self.merge.others

    def touches(self, component: str) -> bool:
        """Whether the files contain any tensor of a component."""
        return bool(self._files_with(component))

    def component(self, name: str) -> OverlaidComponent:
        """A component with the overlays applied."""
        return OverlaidComponent(self, name)

    def digests(self, component: str) -> list[str]:
        """The hashes of the files that contain tensors of a component, in order."""
        return [fingerprint.of_file(source.components[component].file) for source in self._files_with(component)]

    def notes(self) -> Iterator[str]:
        """Lines that report how many of the model's tensors each file replaces."""
        origin = self.merge.origin
        for source in self.merge.others:
            counts = {c: sum(one is source for one in names.values()) for c, names in origin.items()}
            counted = ", ".join(f"{count} of {len(origin[c])} tensors of {c}" for c, count in counts.items() if count)
            yield f"model.over: {counted or 'nothing'} from {source.path}"

    def _files_with(self, component: str) -> list[ModelTensors]:
        return [source for source in self.merge.others if component in source.components]


@dataclass(frozen=True, slots=True)
class OverlaidComponent:
    """The tensors of one component under the names of its network; implements `Stored`."""

    overlay: Overlay
    name: str

    @property
    def path(self) -> Path:
        """The last file that contains tensors of it, for messages."""
        return self.overlay._files_with(self.name)[-1].path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        return self.overlay.merge.header(self.name)

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        return self.overlay.merge.read(self.name, names)

    def read_all(self) -> dict[str, Tensor]:
        """All tensors."""
        return self.read(list(self.header()))
