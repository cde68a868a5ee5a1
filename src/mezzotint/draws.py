"""Addresses of randomness. Every draw is a function of where it is used, never of how many draws came before it.

`key(seed, purpose, *where)` identifies one draw by a 64-bit number. Draws of the data loader are addressed by (epoch,
sample, visit), draws of a step by (step, position in the global batch), so no draw depends on ranks, workers,
micro-batches or interruptions. `keys` is the same function over numpy arrays. The mixing function is SplitMix64's
finaliser (Steele, Lea, Flood 2014); text is hashed by BLAKE2b.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def key(seed: int, purpose: str, *where: int | str) -> int:
    """The 64-bit address of one draw.

    seed: the run's seed, any integer. purpose: what is drawn ("order", "crop", "noise", …). where: integers and texts
    that identify the draw. Equal arguments give equal keys on every machine and version; different ones give unrelated
    keys.
    """
    state = _mix((seed & _MASK) ^ text_key(purpose))
    for part in where:
        number = text_key(part) if isinstance(part, str) else part & _MASK
        state = _mix((state + _GOLDEN + number) & _MASK)
    return state


def keys(seed: int, purpose: str, *where: int | str | NDArray[Any]) -> NDArray[np.uint64]:
    """`key` over arrays: integer arrays among `where` are broadcast together; equal to `key` element by element."""
    state: Any = np.uint64(_mix((seed & _MASK) ^ text_key(purpose)))
    with np.errstate(over="ignore"):
        for part in where:
            number = np.uint64(text_key(part)) if isinstance(part, str) else _as_uint64(part)
            state = _mix_array(state + np.uint64(_GOLDEN) + number)
    return np.atleast_1d(np.asarray(state, dtype=np.uint64))


def uniform(address: int) -> float:
    """The number in [0, 1) at an address: its upper 53 bits."""
    return (address >> 11) * 2.0**-53


def uniforms(addresses: NDArray[np.uint64]) -> NDArray[np.float64]:
    """`uniform` over an array of addresses."""
    return (addresses >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(address: int, count: int) -> int:
    """An integer in [0, count) at an address (by multiplication, Lemire 2019; the bias is below count · 2⁻⁶⁴)."""
    return (address * count) >> 64


def text_key(text: str) -> int:
    """64 bits of BLAKE2b of a text (UTF-8; lone surrogates of undecodable file names stay distinct)."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _mix_array(z: Any) -> Any:
    """`_mix` of a scalar, or of an array in place."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _as_uint64(value: int | NDArray[Any]) -> Any:
    if isinstance(value, int):
        return np.uint64(value & _MASK)
    return value.astype(np.int64).view(np.uint64) if value.dtype.kind == "i" else value.astype(np.uint64)
