"""Files of LatteT2V and its autoencoder in the spellings there are: each tensor has its place, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mezzotint.assets import MODELS
from mezzotint.compat.open_sora_plan.latte_layout import LAYOUT, UNREAD, open_autoencoder, open_denoiser
from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE, CausalVAEConfig
from mezzotint.compat.open_sora_plan.nets.latte import Latte, LatteConfig
from mezzotint.errors import WeightsError
from mezzotint.weights.files.tensor_files import InFile, TensorInfo
from mezzotint.weights.folder import state

SMALL = LatteConfig(
    num_layers=2, num_attention_heads=2, attention_head_dim=8, caption_channels=12, compress_kv_factor=2
)


@dataclass(frozen=True)
class Held:
    """Tensors in memory, as if they lay in a file."""

    tensors: dict[str, Tensor]
    path: Path = Path("made.safetensors")

    def header(self) -> dict[str, TensorInfo]:
        return {name: TensorInfo("F32", tuple(t.shape)) for name, t in self.tensors.items()}

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        return {name: self.tensors[name] for name in names}


def shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}


def as_port(name: str) -> str:
    """As the MindSpore port writes it."""
    stem, _, leaf = name.rpartition(".")
    return f"{stem}.{ {'weight': 'gamma', 'bias': 'beta'}[leaf] }" if stem.endswith("norm") else name


def in_pairs(name: str) -> str:
    """The second name that the port has for the tensors of a block."""
    kind, _, rest = name.partition("transformer_blocks.")
    number, _, inner = rest.partition(".")
    return f"blocks.{number}.{'temp_block' if kind else 'spatial_block'}.{inner}" if rest else name


SPELLINGS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "released": dict,
    "diffusers": lambda held: {name: t for name, t in held.items() if name != UNREAD},
    "port": lambda held: {as_port(name): t for name, t in held.items()},
    "port with a prefix": lambda held: {f"network.{as_port(name)}": t for name, t in held.items()},
    "port, blocks by pairs": lambda held: {in_pairs(as_port(name)): t for name, t in held.items()},
    "port, blocks twice": lambda held: held | {in_pairs(name): t + 1 for name, t in held.items() if "blocks" in name},
    "port with a table": lambda held: held | {"temp_pos_embed": torch.zeros(1, 5, 16)},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_all_name_layouts_are_read(spelling: str) -> None:
    source = Latte(SMALL)
    source.caption_projection.y_embedding.fill_(3.0)
    held = {name: tensor.detach().clone() for name, tensor in source.state_dict().items()}
    network = state.build_on_meta(lambda: Latte(SMALL))
    file = open_denoiser(Held(SPELLINGS[spelling](held)), shapes(network))
    state.load_into(network, file)
    for name, tensor in network.state_dict().items():
        expected = torch.zeros(120, 12) if (name, spelling) == (UNREAD, "diffusers") else held[name]
        assert torch.equal(tensor, expected), name
    assert file.dropped() == ("1 tensor (temp_pos_embed)" if spelling.endswith("table") else None)


def test_missing_and_unexpected_tensors_are_refused(tmp_path: Path) -> None:
    held = dict(Latte(SMALL).state_dict())
    held["mystery.weight"] = held.pop("proj_out.weight")
    save_file({name: t.contiguous() for name, t in held.items()}, tmp_path / "it.safetensors")
    network = state.build_on_meta(lambda: Latte(SMALL))
    with pytest.raises(WeightsError, match=r"missing: 1 tensor \(proj_out.weight\).*mystery.weight") as met:
        state.load_into(network, open_denoiser(InFile(tmp_path / "it.safetensors"), shapes(network)))
    assert met.value.code == "E1405"


def test_weights_of_another_length_load_but_not_of_another_width() -> None:
    source = Latte(SMALL)
    network = state.build_on_meta(
        lambda: Latte(LatteConfig(**{k: getattr(SMALL, k) for k in SMALL.__slots__} | {"video_length": 56}))
    )
    state.load_into(network, open_denoiser(Held(dict(source.state_dict())), shapes(network)))
    wider = state.build_on_meta(
        lambda: Latte(LatteConfig(num_layers=2, num_attention_heads=4, attention_head_dim=8, caption_channels=12))
    )
    with pytest.raises(WeightsError, match="of another shape"):
        state.load_into(wider, open_denoiser(Held(dict(source.state_dict())), shapes(wider)))


def test_autoencoder_is_read_without_its_training_state() -> None:
    config = CausalVAEConfig(hidden_size=32, hidden_size_mult=(1, 1, 1, 1), num_res_blocks=1)
    source = CausalVAE(config)
    held = {name: tensor.detach().clone() for name, tensor in source.state_dict().items()}
    gamma = {
        (n if ".norm" not in n else n.replace(".weight", ".gamma").replace(".bias", ".beta")): t
        for n, t in held.items()
    }
    for tensors in (held | {"loss.logvar": torch.zeros(()), "loss.discriminator.main.0.weight": torch.zeros(3)}, gamma):
        network = state.build_on_meta(lambda: CausalVAE(config))
        state.load_into(network, open_autoencoder(Held(tensors), shapes(network)))
        assert all(torch.equal(tensor, held[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("model", ["latte-17f", "latte-65f", "latte-221f"])
def test_full_size_latte_names_round_trip(model: str) -> None:
    configs = {part: json.loads((MODELS / model / part / "config.json").read_text()) for part in ("", "vae")}
    for component, network in (
        ("denoiser", state.build_on_meta(lambda: Latte(LatteConfig.read(configs[""])))),
        ("vae", state.build_on_meta(lambda: CausalVAE(CausalVAEConfig.read(configs["vae"])))),
    ):
        ours = shapes(network)
        table = LAYOUT.choose(component, {}).table(list(ours))
        assert len(table.entries) == len(ours) == {"denoiser": 968, "vae": 260}[component]
        for entry in table.entries:
            assert entry.shapes(entry.foreign_shape(ours)) == {entry.foreign: ours[entry.foreign]}
            assert all(table.find_foreign(name) is entry for name in (entry.foreign, *entry.also))
