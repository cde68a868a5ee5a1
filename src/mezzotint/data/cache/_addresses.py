"""Addresses of cached numbers: 32 bytes made of everything that a latent or an embedding depends on.

What is not in an address cannot make a cache stale, and what is in it need not be compared: a changed picture, VAE or
setting has another address, and nothing is found there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from mezzotint.data.media import clip_files
from mezzotint.data.media.decoding import PREPROCESSING
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Placement


def latent_identity(settings: DataSettings, media_identity: str, compute: str) -> str:
    """What the latents of a data set depend on besides picture and placement, as one line.

    media_identity: of the family (VAE weights, configuration, scaling, tiling). compute: the type the VAE runs in.
    """
    of_clips = {"clips": clip_files.PREPROCESSING} if settings.has_clips else {}
    return _line(
        media=media_identity,
        compute=compute,
        preprocessing=PREPROCESSING,
        resize=settings.resize if settings.antialias else f"{settings.resize}, not antialiased",
        background=settings.background,
        content=settings.cache.content,
        dtype=settings.cache.dtype,
        **of_clips,
    )


def text_identity(dtype: str, encoder_identity: str, compute: str) -> str:
    """What embeddings depend on besides the caption, as one line. dtype: of stored numbers. encoder_identity: of the
    family (tokenizer, encoder weights, clip skip, token length). compute: the type the encoder runs in."""
    return _line(text=encoder_identity, compute=compute, dtype=dtype)


def latent_address(
    digest: bytes, placement: Placement, identity: str, *, draw: int | None = None, times: Sequence[float] = ()
) -> bytes:
    """32 bytes that name the latents of a placed picture or clip.

    digest: SHA-256 of the file. identity: from `latent_identity`. draw: where one posterior sample is kept, the address
    of its noise. times: of the frames of a clip, in seconds on its own clock.
    """
    p = placement
    numbers = (
        p.bucket.width, p.bucket.height, p.bucket.frames, p.resized.width, p.resized.height, p.resized.frames,
        *p.crop_top_left, int(p.flipped), -1 if draw is None else draw,
    )  # fmt: skip
    seen = f"\0{','.join(map(repr, times))}" if times else ""
    text = f"latents\0{digest.hex()}\0{','.join(map(str, numbers))}{seen}\0{identity}"
    return hashlib.sha256(text.encode()).digest()


def text_address(caption: str, identity: str, *, mark: str = "") -> bytes:
    """32 bytes that name the embedding of a caption, as it goes to the tokenizer. identity: from `text_identity`. mark:
    the file that it was taken from, where another trainer has made it (`overrides.Marked`)."""
    taken = f"\0{mark}" if mark else ""
    return hashlib.sha256(f"text\0{identity}{taken}\0{caption}".encode("utf-8", "surrogatepass")).digest()


def short(identity: str) -> str:
    """16 hexadecimal digits of an identity: the name of its folder."""
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _line(**fields: str | int) -> str:
    return json.dumps(fields, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
