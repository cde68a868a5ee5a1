"""Tiling of the causal autoencoder: tiles are blended, and memory is that of one tile however long the clip is."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from small_nets import clip
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from mezzotint.compat.open_sora_plan.latte import Family
from mezzotint.compat.open_sora_plan.nets.causal_vae import CausalVAE, Tiling, posterior
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder


@pytest.mark.parametrize("frames", [9, 17])
def test_tiling_keeps_the_length_of_the_clip(frames: int) -> None:
    tiling = {"enabled": True, "side": 32, "frames": 9}
    settings = ModelSettings(
        family="latte", path=shipped_folder("tiny-latte"), weights="random", latte={"tiling": tiling}
    )
    one = Family.of(settings, ["vae"])
    moments = one.encode_media(torch.zeros(1, 3, frames, 48, 48))
    assert moments.shape == (1, 8, (frames - 1) // 4 + 1, 6, 6)
    assert one.decode_media(moments[:, :4]).shape == (1, 3, frames, 48, 48)


@pytest.mark.parametrize("frames", [3, 9, 14, 18])
def test_temporal_tiles_share_one_frame(frames: int, network: CausalVAE) -> None:
    network.tiling = Tiling(side=32, frames=9)
    pixels = clip(frames, 24, 24)  # 24 of 32: the second tile begins at 24, so there is none
    chunks = [pixels[:, :, start : start + 9] for start in range(0, max(frames - 1, 1), 8)]
    encoded = [untiled(network, "encode", chunk) for chunk in chunks]
    joined = torch.cat([encoded[0], *(part[:, :, 1:] for part in encoded[1:])], dim=2)
    assert torch.equal(network.encode(pixels), joined)
    assert joined.shape[2] == network.latent_frames(frames)
    latents = posterior(joined)[0]
    chunks = [latents[:, :, start : start + 3] for start in range(0, max(latents.shape[2] - 1, 1), 2)]
    parts = [untiled(network, "decode", chunk) for chunk in chunks]
    whole = torch.cat([parts[0], *(part[:, :, 1:] for part in parts[1:])], dim=2)
    assert torch.equal(network.decode(latents), whole)
    assert whole.shape[2] == 4 * (latents.shape[2] - 1) + 1


def untiled(network: CausalVAE, method: str, part: Tensor) -> Tensor:
    """What `encode` or `decode` gives without tiling."""
    tiling, network.tiling = network.tiling, None
    result: Tensor = getattr(network, method)(part)
    network.tiling = tiling
    return result


def test_clip_that_fits_a_tile_is_not_split(network: CausalVAE) -> None:
    pixels = clip(9, 32, 32)
    whole = network.encode(pixels)
    network.tiling = Tiling(side=32, frames=9)
    assert torch.equal(network.encode(pixels), whole)
    assert not torch.equal(network.encode(clip(9, 32, 40))[..., :4], whole)
    latents = posterior(whole)[0]
    parted = network.decode(latents)
    network.tiling = None
    assert torch.equal(parted, network.decode(latents))


def test_tiles_are_blended_with_already_blended_neighbours(network: CausalVAE) -> None:
    """Against a plain reading of the rule, number by number."""
    tiling = Tiling(side=64, frames=9, overlap=0.25)  # 8 latents, of which 2 are blended: a tile each 48 pixels
    pixels = clip(5, 80, 120)
    tiles = {
        (i, j): untiled(network, "encode", pixels[..., 48 * i : 48 * i + 64, 48 * j : 48 * j + 64])
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
    blended = torch.cat(rows, dim=3)
    assert blended.shape[3:] == (10, 15)
    network.tiling = tiling
    torch.testing.assert_close(network.encode(pixels), blended, rtol=0, atol=1e-6)


def test_tiled_clips_keep_their_sizes(network: CausalVAE) -> None:
    network.tiling = Tiling(side=32, frames=5, overlap=0.5)
    moments = network.encode(clip(6, 40, 56))
    assert moments.shape == (1, 8, 2, 5, 7)
    assert network.decode(posterior(moments)[0]).shape == (1, 3, 5, 40, 56)
    latents = torch.zeros(1, 4, 3, 3, 5)
    assert network.decode(latents).shape == (1, 3, 9, 24, 40)


def test_block_means_are_tiled_without_seams() -> None:
    """A coder that gives each pixel block's mean: whatever is blended is equal, and the whole comes back."""
    tiling = Tiling(side=32, frames=9)
    pixels = clip(5, 80, 104)
    pooled = tiling.encode(pixels, lambda part: nn.functional.avg_pool3d(part, (1, 8, 8)).clone())
    torch.testing.assert_close(pooled, nn.functional.avg_pool3d(pixels, (1, 8, 8)), rtol=0, atol=1e-6)
    latents = torch.randn(1, 4, 2, 13, 9, generator=torch.Generator().manual_seed(0))
    wide = tiling.decode(latents, lambda part: nn.functional.interpolate(part, scale_factor=(1, 8, 8)))
    torch.testing.assert_close(wide, nn.functional.interpolate(latents, scale_factor=(1, 8, 8)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("overlap", [0, 1, -0.25, 0.3, 1.25])
def test_misaligned_overlap_is_refused_with_an_aligned_one(overlap: float) -> None:
    with pytest.raises(RecipeError, match=r"overlap of tiles .* write 0\.\d+") as met:
        Tiling(overlap=overlap)
    assert met.value.code == "E1003"
    proposed = float(str(met.value).rsplit(" ", 1)[1])
    assert Tiling(overlap=proposed).overlap == proposed


@dataclass
class LiveBytes:
    """Bytes of storages that are alive, and the most there ever were."""

    now: int = 0
    peak: int = 0


class StorageCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.live = LiveBytes()
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        address = storage.data_ptr()
        if address not in self._known:
            self._known[address] = storage.nbytes()
            self.live.now += storage.nbytes()
            self.live.peak = max(self.live.peak, self.live.now)
            weakref.finalize(storage, self._release, address)

    def _release(self, address: int) -> None:
        self.live.now -= self._known.pop(address, 0)


def test_tiled_long_clip_needs_the_memory_of_one_tile(network: CausalVAE) -> None:
    tiling = Tiling(side=32, frames=9)
    most: dict[str, int] = {}
    sizes = {"one piece": (9, 32), "longer": (33, 32), "longer and larger": (33, 72), "whole": (33, 72)}
    for name, (frames, side) in sizes.items():
        pixels = clip(frames, side, side)
        network.tiling = tiling if name.startswith("longer") else None
        with StorageCounter() as counter:
            moments = network.encode(pixels)
            most[name] = counter.live.peak - pixels.nbytes  # the clip itself is there anyway
        assert moments.shape[2:] == (network.latent_frames(frames), side // 8, side // 8)
    result = 4 * 8 * 9 * 9 * 9  # float32 moments of the largest
    assert most["one piece"] > 1e6
    # tiles of a row and the row above stay until they are blended; a piece that is cut out may be copied
    bound = most["one piece"] + 4 * result + 4 * 3 * 9 * 32 * 32
    assert most["longer"] < bound
    assert most["longer and larger"] < bound
    assert most["whole"] > 10 * most["longer and larger"]
