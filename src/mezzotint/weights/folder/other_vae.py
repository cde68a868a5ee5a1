"""An autoencoder from elsewhere, in the place of a model's own: from its folder, from another model's, or from a file.

SDXL's own overflows in half precision; a repaired one with the same latents goes round as a folder and as a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mezzotint.errors import WeightsError
from mezzotint.weights import kinds
from mezzotint.weights.files import fingerprint, tensor_files
from mezzotint.weights.files.tensor_files import Stored, TensorInfo
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import find_weights, read_json
from mezzotint.weights.keymap import ComponentMap
from mezzotint.weights.layouts import base
from mezzotint.weights.single_file.match_tensors import ComponentInFile

_ORIGINAL = ("encoder.", "decoder.", "quant_conv.", "post_quant_conv.")


@dataclass(frozen=True, slots=True)
class OtherVae:
    """path: as the user named it. config: of the network. where: the configuration's file, for messages. stored: its
    tensors under names that the network or older ones of its kind have."""

    path: Path
    config: dict[str, Any]
    where: Path
    stored: Stored

    def weights(self) -> str:
        """A name for the weights, made of what they are: that of a folder's file, wherever the folder lies."""
        if isinstance(self.stored, tensor_files.InFile):
            return fingerprint.of_file(self.stored.place)
        assert isinstance(self.stored, ComponentInFile)
        return self.stored.digest()

    def tensors(self) -> dict[str, Tensor]:
        """All of it, in the types of the file, under current names."""
        if isinstance(self.stored, ComponentInFile):
            self.stored.require_known()
        return components.modern_names("vae", self.stored.read(tuple(self.stored.header())))


def open_vae(path: Path, own: Mapping[str, Any], where: Path) -> OtherVae:
    """Opens what `model.vae` names, by headers.

    path: a component's folder (config.json and weights), a model's folder with such a folder `vae`, or a safetensors
    file under diffusers' or the original names, which has no configuration: it is taken to be of the model's own. own,
    where: that one, and its file. Raises WeightsError E1401 for a path that is not there, E1406 for something else
    than an autoencoder, E1407 and E1408 for a folder without weights that can be read, E1409 for a damaged one.
    """
    if not path.exists():
        raise WeightsError(f"model.vae: {path} is not there (looked in {Path.cwd()}); check the path", code="E1401")
    if path.is_dir():
        return _of_folder(path, path / "vae" if (path / "vae" / "config.json").is_file() else path)
    if path.suffix != ".safetensors":
        raise WeightsError(
            f"model.vae: {path} is no folder and no .safetensors file; give the folder of the autoencoder, or its "
            "safetensors file",
            code="E1406",
        )
    header = tensor_files.read_header(path)
    start = next((s for s in (base.VAE, "") if any(n.startswith(f"{s}encoder.down.") for n in header)), None)
    if start is not None:
        return OtherVae(path, dict(own), where, _in_original_layout(path, header, start, own, where))
    if not any(name.startswith("encoder.down_blocks.") for name in header):
        raise WeightsError(
            f"model.vae: {path} looks like {kinds.of_tensors(header)}; give an autoencoder's file", code="E1406"
        )
    return OtherVae(path, dict(own), where, tensor_files.InFile(path))


def _of_folder(path: Path, folder: Path) -> OtherVae:
    config = {k: v for k, v in read_json(folder / "config.json").items() if k != "_name_or_path"}
    if config.get("_class_name", "AutoencoderKL") != "AutoencoderKL":
        raise WeightsError(
            f"model.vae: {folder} holds {config['_class_name']}; give the folder of an AutoencoderKL", code="E1406"
        )
    weights = find_weights(folder)
    if weights is None:
        raise WeightsError(
            f"model.vae: {folder} has a configuration and no weights; fetch the whole autoencoder", code="E1407"
        )
    return OtherVae(path, config, folder / "config.json", tensor_files.InFile(weights.path))


def _in_original_layout(
    path: Path, header: Mapping[str, TensorInfo], start: str, config: Mapping[str, Any], where: Path
) -> ComponentInFile:
    table = ComponentMap(start, base.vae, "vae").table(list(components.shapes("vae", config, where=where)))
    present = table.present(header)
    seemingly = tuple(start + word for word in _ORIGINAL)
    strange = [name for name in header if name.startswith(seemingly) and name not in present]
    return ComponentInFile(path, path, header, present, strange)
