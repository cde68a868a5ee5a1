"""Frozen adapters under a run (`model.under`): they change the denoiser while it is trained, and are not exported.

A distilled model, such as Z-Image Turbo, loses its few-step sampling when it is trained. An adapter that was trained to
undo the distillation is put under the run, so that the new adapter learns only the images, and is left out afterwards
(Ostris' "training adapters").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from mezzotint.adapters import files
from mezzotint.adapters.modules import AdapterModule
from mezzotint.adapters.names import LayerNames
from mezzotint.adapters.networks import module_path
from mezzotint.errors import WeightsError
from mezzotint.settings.sections.under import UnderSettings
from mezzotint.weights.files import fingerprint
from mezzotint.weights.model_files import ModelFiles


@dataclass(eq=False)
class Switch:
    """Whether the adapters have an effect."""

    is_on: bool = True


@dataclass(frozen=True, slots=True)
class UnderAdapters:
    """The adapters under a run. notes: for the user, about their files."""

    notes: tuple[str, ...] = ()
    switch: Switch = field(default_factory=Switch)

    @contextmanager
    def off(self) -> Iterator[None]:
        """Context in which the networks compute without them, bit for bit as if they were not there."""
        before, self.switch.is_on = self.switch.is_on, False
        try:
            yield
        finally:
            self.switch.is_on = before


def put_under(
    settings: Sequence[UnderSettings], model_files: ModelFiles, parts: Mapping[str, nn.Module]
) -> UnderAdapters:
    """Attaches adapters to the loaded denoisers, before any other change of their layers.

    Raises WeightsError E1448 for a file that does not exist or also changes a text encoder, and what reading it raises.
    """
    switch, notes = Switch(), []
    names = LayerNames.of(model_files) if settings else None
    for one in settings:
        assert names is not None
        if not one.path.exists():
            raise WeightsError(
                f"model.under: {one.path} does not exist; give an adapter's file, or a folder with one (`hf download` "
                "fetches it from the hub)",
                code="E1448",
            )
        adapter = files.read(one.path, names, denoiser=names.denoisers[0] if len(names.denoisers) == 1 else None)
        other = [component for component in adapter.components if component not in names.denoisers]
        if other:
            raise WeightsError(
                f"model.under: {one.path} also changes {', '.join(other)}, and adapters under a run change the "
                f"denoiser only; `mezzotint merge` it into the model, and train that",
                code="E1448",
            )
        notes += [f"model.under: {one.path}: {note}" for note in adapter.notes]
        for part, component in model_files.spec.folders.items():
            if part in parts:
                _attach(parts[part], adapter.of(component), one.strength, switch)
    return UnderAdapters(tuple(notes), switch)


def fingerprints(settings: Sequence[UnderSettings]) -> dict[str, str]:
    """The hashes of the files, by "adapter under the run" and a number."""
    hashes = [fingerprint.of_file(file) for one in settings for file in files.files_at(one.path)]
    return {f"adapter {number} under the run": text for number, text in enumerate(hashes, 1)}


def describe(settings: Sequence[UnderSettings]) -> list[dict[str, Any]]:
    """Name, hash and strength of each file, for headers and reports; no paths of this machine."""
    return [
        {"name": file.name, "sha256": fingerprint.of_file(file), "strength": one.strength}
        for one in settings
        for file in files.files_at(Path(one.path))
    ]


def _attach(network: nn.Module, modules: Mapping[str, AdapterModule], strength: float, switch: Switch) -> None:
    layers: dict[str, Any] = dict(network.named_modules())
    for path, module in modules.items():
        layer = layers[module_path(path, layers)]
        change = _Change(module, strength, tuple(layer.weight.shape), switch)
        change.to(next(chain(layer.parameters(), layer.buffers())).device)
        number = sum(isinstance(child, _Change) for child in layer.children())
        layer.add_module(f"under_{number}", change)
        layer.register_forward_hook(change.add)


class _Change(nn.Module):
    """What one adapter adds to the output of a layer. Its factors are buffers that no file contains."""

    def __init__(self, module: AdapterModule, strength: float, shape: tuple[int, ...], switch: Switch) -> None:
        super().__init__()
        self._module, self._strength, self._shape, self._switch = module, strength, shape, switch
        self._names = {f"factor_{number}": name for number, name in enumerate(module.tensors)}
        for factor, name in self._names.items():
            self.register_buffer(factor, module.tensors[name].detach().clone(), persistent=False)

    def add(self, layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """The layer's output with the change; unchanged while the adapters are off."""
        if not self._switch.is_on:
            return output
        tensors = {name: self.get_buffer(factor) for factor, name in self._names.items()}
        if tensors.keys() == {"lora_down.weight", "lora_up.weight"} and self._module.rows is None:
            change = self._low_rank(layer, inputs[0], tensors)
        else:
            change = _apply(layer, inputs[0], self._dense(layer, tensors).to(inputs[0].dtype))
        return output + change.to(output.dtype)

    def _low_rank(self, layer: Any, x: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        down, up = (tensors[f"lora_{name}.weight"].to(x.dtype) for name in ("down", "up"))
        rank = down.shape[0]
        scale = self._module.scale * self._strength
        if len(self._shape) == 2:
            return functional.linear(functional.linear(x, down.reshape(rank, -1)), up.reshape(-1, rank)) * scale
        inner = _apply(layer, x, down.reshape(rank, *self._shape[1:]))
        convolve = functional.conv2d if len(self._shape) == 4 else functional.conv3d
        change: Tensor = convolve(inner, up.reshape(-1, rank, *(1,) * (len(self._shape) - 2)))
        return change * scale

    def _dense(self, layer: Any, tensors: Mapping[str, Tensor]) -> Tensor:
        """The change of the layer's weight, float32, for kinds whose factors cannot be applied one by one."""
        module = AdapterModule(
            self._module.kind, tensors, self._module.alpha, self._module.rank_stabilized, self._module.rows
        )
        if not module.needs_weight:
            return module.difference(self._shape) * self._strength
        weight: Tensor = layer.weight.float()
        return module.merge_into(weight, self._strength) - weight


def _apply(layer: Any, x: Tensor, weight: Tensor) -> Tensor:
    """A linear or convolution layer with another weight and no bias."""
    if weight.ndim == 2:
        return functional.linear(x, weight)
    convolve = functional.conv2d if weight.ndim == 4 else functional.conv3d
    change: Tensor = convolve(x, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups)
    return change
