"""Files laid over a model as it is opened: what `model.over` names takes the place of the model's own tensors, the last
file that has one first, read tensor by tensor. `mezzotint merge` writes the same down."""

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
    """A model, `base`, with files over it. config: of a model in one file, the folder of its configurations."""

    base: Path
    over: tuple[Path, ...]
    config: Path | None = None

    @cached_property
    def merge(self) -> Merge:
        """Base and files, opened by their headers. Raises WeightsError as `open_base` and `open_other` do."""
        with torch.device("cpu"):  # `check` opens models where tensors have no values
            base = open_base(self.base, config=self.config)
            return Merge(base, [open_other(path, base) for path in self.over])

    def require_fit(self) -> None:
        """Raises WeightsError when the files cannot be laid over the model. Reads headers alone."""
        assert self.merge.others

    def touches(self, component: str) -> bool:
        """Whether the files hold anything of a component."""
        return bool(self._having(component))

    def component(self, name: str) -> OverlaidComponent:
        """A component as it comes out."""
        return OverlaidComponent(self, name)

    def digests(self, component: str) -> list[str]:
        """Of the files that hold some of a component, in their order."""
        return [fingerprint.of_file(source.held[component].file) for source in self._having(component)]

    def notes(self) -> Iterator[str]:
        """How much each file puts in the place of the model's own."""
        origin = self.merge.origin
        for source in self.merge.others:
            counts = {c: sum(one is source for one in names.values()) for c, names in origin.items()}
            counted = ", ".join(f"{count} of {len(origin[c])} tensors of {c}" for c, count in counts.items() if count)
            yield f"model.over: {counted or 'nothing'} from {source.path}"

    def _having(self, component: str) -> list[ModelTensors]:
        return [source for source in self.merge.others if component in source.held]


@dataclass(frozen=True, slots=True)
class OverlaidComponent:
    """The tensors of one component under the names of its network; see `Stored`."""

    overlay: Overlay
    name: str

    @property
    def place(self) -> Path:
        """The last file that holds some of it: what messages call it."""
        return self.overlay._having(self.name)[-1].path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        return self.overlay.merge.header(self.name)

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        return self.overlay.merge.read(self.name, names)

    def everything(self) -> dict[str, Tensor]:
        """All of them."""
        return self.read(list(self.header()))
