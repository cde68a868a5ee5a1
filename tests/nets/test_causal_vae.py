"""The causal video autoencoder: names of the released size, frame law, causality, pieces and their memory."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mezzotint.assets import MODELS
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.nets._causal_layers import Norm
from mezzotint.nets.causal_vae import CausalVAE, CausalVAEConfig, Tiling, posterior
from mezzotint.weights.folder.state import on_meta

TINY = CausalVAEConfig(hidden_size=32, hidden_size_mult=(1, 1, 1, 1), num_res_blocks=1)


def released(name: str = "latte-17f") -> dict[str, Any]:
    told: dict[str, Any] = json.loads((MODELS / name / "vae" / "config.json").read_text())
    return told


@pytest.fixture(scope="module")
def network() -> CausalVAE:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        made = CausalVAE(TINY)
        for parameter in made.parameters():
            if parameter.ndim == 1:
                nn.init.normal_(parameter, mean=0.5, std=0.2)
    return made.eval().requires_grad_(False)


@pytest.fixture(autouse=True)
def _whole(network: CausalVAE) -> Iterator[None]:
    yield
    network.tiling = None
    network.keep_norms_in_float32(False)


def clip(frames: int, height: int = 16, width: int = 16) -> Tensor:
    return torch.rand(1, 3, frames, height, width, generator=torch.Generator().manual_seed(2)) * 2 - 1


@pytest.mark.parametrize("name", ["latte-17f", "latte-65f", "latte-221f"])
def test_the_released_configuration_makes_the_released_tensors(name: str) -> None:
    config = CausalVAEConfig.read(released(name))
    assert config == CausalVAEConfig()
    assert (config.pixels, config.frames) == (8, 4)
    made = on_meta(lambda: CausalVAE(config))
    names = {key: tuple(tensor.shape) for key, tensor in made.state_dict().items()}
    assert len(names) == 260
    assert sum(p.numel() for p in made.parameters()) == 246_859_499
    assert sum(p.numel() for p in made.encoder.parameters()) == pytest.approx(97.3e6, rel=1e-3)
    assert sum(p.numel() for p in made.decoder.parameters()) == pytest.approx(149.5e6, rel=1e-3)
    for key, shape in {
        "encoder.conv_in.weight": (128, 3, 3, 3),
        "encoder.down.0.block.0.conv1.weight": (128, 128, 3, 3),
        "encoder.down.2.block.0.nin_shortcut.conv.weight": (512, 256, 1, 1, 1),
        "encoder.down.2.downsample.conv.weight": (512, 512, 3, 3),
        "encoder.down.1.time_downsample.conv.weight": (256, 256, 3, 3, 3),
        "encoder.down.2.time_downsample.mix_factor": (1,),
        "encoder.mid.attn_1.q.conv.weight": (512, 512, 1, 1, 1),
        "encoder.conv_out.conv.weight": (8, 512, 3, 3, 3),
        "decoder.up.3.time_upsample.conv.conv.weight": (512, 512, 3, 3, 3),
        "decoder.up.1.upsample.conv.conv.weight": (256, 256, 1, 3, 3),
        "quant_conv.conv.weight": (8, 8, 1, 1, 1),
        "post_quant_conv.conv.weight": (4, 4, 1, 1, 1),
    }.items():
        assert names[key] == shape
    assert not any(key.startswith(("encoder.down.0.time", "encoder.down.3.down", "decoder.up.0.up")) for key in names)


@pytest.mark.parametrize(("frames", "latents"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (17, 5)])
def test_n_frames_become_a_quarter_of_those_after_the_first(frames: int, latents: int, network: CausalVAE) -> None:
    moments = network.encode(clip(frames))
    assert moments.shape == (1, 8, latents, 2, 2)
    assert network.latent_frames(frames) == latents
    mean, log_variance = posterior(moments)
    assert network.decode(mean).shape == (1, 3, 4 * (latents - 1) + 1, 16, 16)
    assert log_variance.shape == mean.shape == (1, 4, latents, 2, 2)
    assert [network.latent_frames(n) for n in (65, 221, 513)] == [17, 56, 129]


def test_latents_do_not_look_ahead(network: CausalVAE) -> None:
    """But for the statistics of its norms, which are those of the whole clip, and are held here."""
    norms = [module for module in network.modules() if isinstance(module, Norm)]
    held = [norm.register_forward_hook(lambda _, given, __: given[0].clone()) for norm in norms]
    whole, later = clip(13), clip(13)
    later[:, :, 9:] = 0
    found, other = network.encode(whole), network.encode(later)
    for hook in held:
        hook.remove()
    assert torch.equal(found[:, :, :3], other[:, :, :3])
    assert not torch.equal(found[:, :, 3], other[:, :, 3])


def test_posterior_clamps_the_variance_and_is_float32() -> None:
    moments = torch.tensor([1.0, -50.0, 2.0, 50.0], dtype=torch.bfloat16).view(1, 4, 1, 1, 1)
    mean, log_variance = posterior(moments)
    assert mean.flatten().tolist() == [1, -50]
    assert log_variance.flatten().tolist() == [2, 20]
    assert posterior(-moments)[1].flatten().tolist() == [-2, -30]
    assert mean.dtype == log_variance.dtype == torch.float32


def test_norms_can_stay_in_float32(network: CausalVAE) -> None:
    norm = Norm(32).bfloat16()
    x = torch.randn(2, 32, 3, 4, 4, generator=torch.Generator().manual_seed(0)).bfloat16() * 30 + 200
    plain = norm(x)
    network.keep_norms_in_float32()
    assert all(m.in_float32 for m in network.modules() if isinstance(m, Norm))
    norm.in_float32 = True
    wide = norm(x)
    assert wide.dtype == plain.dtype == torch.bfloat16
    exact = nn.functional.group_norm(x.double(), 32, eps=1e-6)
    assert (wide - exact).abs().max() <= (plain - exact).abs().max()
    torch.testing.assert_close(wide, exact.bfloat16(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("frames", [3, 9, 10, 14, 17, 18])
def test_chunks_of_time_are_encoded_alone_and_share_a_frame(frames: int, network: CausalVAE) -> None:
    network.tiling = Tiling(side=32, frames=9)
    pixels = clip(frames, 24, 24)  # 24 of 32: the second tile begins at 24, so there is none
    chunks = [pixels[:, :, start : start + 9] for start in range(0, max(frames - 1, 1), 8)]
    made = [network._encoded(chunk) for chunk in chunks]
    wanted = torch.cat([made[0], *(part[:, :, 1:] for part in made[1:])], dim=2)
    assert torch.equal(network.encode(pixels), wanted)
    assert wanted.shape[2] == network.latent_frames(frames)
    latents = posterior(wanted)[0]
    chunks = [latents[:, :, start : start + 3] for start in range(0, max(latents.shape[2] - 1, 1), 2)]
    parts = [network._decoded(chunk) for chunk in chunks]
    whole = torch.cat([parts[0], *(part[:, :, 1:] for part in parts[1:])], dim=2)
    assert torch.equal(network.decode(latents), whole)
    assert whole.shape[2] == 4 * (latents.shape[2] - 1) + 1


def test_what_fits_a_piece_is_not_parted(network: CausalVAE) -> None:
    pixels = clip(9, 32, 32)
    whole = network.encode(pixels)
    network.tiling = Tiling(side=32, frames=9)
    assert torch.equal(network.encode(pixels), whole)
    assert not torch.equal(network.encode(clip(9, 32, 40))[..., :4], whole)
    latents = posterior(whole)[0]
    parted = network.decode(latents)
    network.tiling = None
    assert torch.equal(parted, network.decode(latents))


def test_tiles_are_blended_row_by_row_with_what_was_blended_before(network: CausalVAE) -> None:
    """Against a plain reading of the rule, number by number."""
    tiling = Tiling(side=64, frames=9, overlap=0.25)  # 8 latents, of which 2 are blended: a tile each 48 pixels
    pixels = clip(5, 80, 120)
    tiles = {
        (i, j): network._encoded(pixels[..., 48 * i : 48 * i + 64, 48 * j : 48 * j + 64])
        for i in range(2)
        for j in range(3)
    }
    for i, j in sorted(tiles):
        tile = tiles[i, j]
        for axis, before in ((3, tiles.get((i - 1, j))), (4, tiles.get((i, j - 1)))):
            if before is None:
                continue
            extent = min(2, before.shape[axis], tile.shape[axis])
            for n in range(extent):
                old = before.select(axis, before.shape[axis] - extent + n)
                tile.select(axis, n).copy_(old * (1 - n / extent) + tile.select(axis, n) * (n / extent))
    rows = [torch.cat([tiles[i, j][..., :6, :6] for j in range(3)], dim=4) for i in range(2)]
    wanted = torch.cat(rows, dim=3)
    assert wanted.shape[3:] == (10, 15)
    network.tiling = tiling
    torch.testing.assert_close(network.encode(pixels), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("overlap", [0.25, 0.5, 0.75])
def test_parted_clips_keep_their_sizes(overlap: float, network: CausalVAE) -> None:
    network.tiling = Tiling(side=32, frames=5, overlap=overlap)
    moments = network.encode(clip(6, 40, 56))
    assert moments.shape == (1, 8, 2, 5, 7)
    assert network.decode(posterior(moments)[0]).shape == (1, 3, 5, 40, 56)
    latents = torch.zeros(1, 4, 3, 3, 5)
    assert network.decode(latents).shape == (1, 3, 9, 24, 40)


def test_a_plain_picture_has_no_seams() -> None:
    """A coder that gives each pixel block's mean: whatever is blended is equal, and the whole comes back."""
    tiling = Tiling(side=32, frames=9)
    pixels = clip(5, 80, 104)
    found = tiling.encode(pixels, lambda part: nn.functional.avg_pool3d(part, (1, 8, 8)).clone())
    torch.testing.assert_close(found, nn.functional.avg_pool3d(pixels, (1, 8, 8)), rtol=0, atol=1e-6)
    latents = torch.randn(1, 4, 2, 13, 9, generator=torch.Generator().manual_seed(0))
    wide = tiling.decode(latents, lambda part: nn.functional.interpolate(part, scale_factor=(1, 8, 8)))
    torch.testing.assert_close(wide, nn.functional.interpolate(latents, scale_factor=(1, 8, 8)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("overlap", [0, 1, -0.25, 0.3, 1.25])
def test_an_overlap_that_would_drift_is_refused_with_one_that_does_not(overlap: float) -> None:
    with pytest.raises(RecipeError, match=r"overlap of tiles .* write 0\.\d+") as met:
        Tiling(overlap=overlap)
    assert met.value.code == "E1003"
    proposed = float(str(met.value).rsplit(" ", 1)[1])
    assert Tiling(overlap=proposed).overlap == proposed


@dataclass
class _Living:
    """Bytes of storages that are alive, and the most there ever were."""

    now: int = 0
    most: int = 0


class _Storages(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.living = _Living()
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: Any) -> None:
        place = storage._cdata
        if place not in self._known:
            self._known[place] = storage.nbytes()
            self.living.now += storage.nbytes()
            self.living.most = max(self.living.most, self.living.now)
            weakref.finalize(storage, self._gone, place)

    def _gone(self, place: int) -> None:
        self.living.now -= self._known.pop(place, 0)


@contextmanager
def counted() -> Iterator[_Living]:
    with _Storages() as mode:
        yield mode.living


def test_a_long_clip_in_pieces_takes_the_memory_of_one_piece(network: CausalVAE) -> None:
    tiling = Tiling(side=32, frames=9)
    most: dict[str, int] = {}
    sizes = {"one piece": (9, 32), "longer": (33, 32), "longer and larger": (33, 72), "whole": (33, 72)}
    for name, (frames, side) in sizes.items():
        pixels = clip(frames, side, side)
        network.tiling = tiling if name.startswith("longer") else None
        with counted() as living:
            moments = network.encode(pixels)
            most[name] = living.most - pixels.nbytes  # the clip itself is there anyway
        assert moments.shape[2:] == (network.latent_frames(frames), side // 8, side // 8)
    result = 4 * 8 * 9 * 9 * 9  # float32 moments of the largest
    assert most["one piece"] > 1e6
    # tiles of a row and the row above stay until they are blended; a piece that is cut out may be copied
    bound = most["one piece"] + 4 * result + 4 * 3 * 9 * 32 * 32
    assert most["longer"] < bound
    assert most["longer and larger"] < bound
    assert most["whole"] > 10 * most["longer and larger"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"q_conv": None}, "lacks q_conv; take the config.json that came with the weights of v1.1"),
        ({"encoder_attention": "AttnBlock3D"}, "encoder_attention has 'AttnBlock3D'.*v1.0"),
        ({"encoder_temporal_downsample": ["", "TimeDownsample2x", "TimeDownsample2x", ""]}, "TimeDownsample2x"),
        ({"encoder_conv_in": "CausalConv3d"}, "encoder_conv_in has 'CausalConv3d'"),
        ({"attn_resolutions": [16]}, "attn_resolutions"),
        ({"dropout": 0.1}, "dropout has 0.1"),
        ({"hidden_size": 48}, "hidden_size must divide by 32"),
        ({"embed_dim": "4"}, "embed_dim must be a whole number"),
        ({"hidden_size_mult": [1, 2, 4]}, "has 4 entries, and hidden_size_mult 3"),
        ({"decoder_spatial_upsample": ["", "", "SpatialUpsample2x", "SpatialUpsample2x"]}, "does not grow"),
    ],
)
def test_another_versions_configuration_is_refused_by_name(change: dict[str, Any], told: str) -> None:
    with pytest.raises(WeightsError, match=told) as met:
        CausalVAEConfig.read(released() | change, "vae/config.json")
    assert met.value.code == "E1409"


def test_fields_of_its_training_are_ignored() -> None:
    told = released() | {"lr": 1e-5, "loss_type": "lpips", "loss_params": {"kl_weight": 1e-6}, "resolution": 256}
    assert CausalVAEConfig.read(told) == CausalVAEConfig()
