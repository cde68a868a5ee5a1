"""Images depend only on their request, not on the batch; embeddings can replace the text encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mezzotint import draws
from mezzotint.diffusion.noise import normal
from mezzotint.families.sd import Family
from mezzotint.sampling.requests import GeneratedImage, Request, Sampling, embed_prompts, initial_noise
from mezzotint.sampling.sample import as_bytes, sample
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import TextEmbedding
from mezzotint.weights.folder.model_folder import shipped_folder


@pytest.fixture(scope="module")
def tiny() -> Family:
    return Family.tiny()


def _draw(family: Family, requests: list[Request], guidance: float = 3.0, batch_size: int = 4) -> list[GeneratedImage]:
    settings = SampleSettings(steps=3, guidance=(guidance,), solver="ddim", batch_size=batch_size)
    return list(sample(family, requests, Sampling(family.schedule, family.prediction, "cpu", settings)))


def test_images_keep_their_order_and_sizes(tiny: Family) -> None:
    sizes = [Size(64, 32), Size(64, 32), Size(32, 64), Size(64, 32)]
    images = _draw(tiny, [Request(f"image {i}", size, index=i) for i, size in enumerate(sizes)])
    assert [p.request.prompt for p in images] == [f"image {i}" for i in range(4)]
    assert [p.pixels.shape for p in images] == [(s.height, s.width, 3) for s in sizes]
    assert all(p.pixels.dtype == np.uint8 for p in images)


def test_image_does_not_depend_on_its_batch(tiny: Family) -> None:
    requests = [Request("a red circle", Size(64, 64), seed=2, index=i) for i in range(3)]
    together_, alone = _draw(tiny, requests), _draw(tiny, requests, batch_size=1)
    for a, b in zip(together_, alone, strict=True):
        assert np.abs(a.pixels.astype(int) - b.pixels.astype(int)).max() <= 1
    assert not np.array_equal(alone[0].pixels, alone[1].pixels)


def test_noise_depends_only_on_seed_and_index(tiny: Family) -> None:
    noise = initial_noise(tiny, [Request("a", Size(32, 64), seed=5, index=9), Request("b", Size(32, 64), seed=5)])
    address = torch.from_numpy(np.array([draws.key(5, "sample", 9)], dtype=np.uint64).view(np.int64))
    assert torch.equal(noise[:1], normal(address, (4, 8, 4)))
    assert not torch.equal(noise[0], noise[1])


def test_precomputed_embeddings_give_the_same_images(tiny: Family) -> None:
    settings = ModelSettings(path=shipped_folder("tiny-sd"), weights="random")
    whole = Family.of(settings)
    cached = Family.of(settings, only=["denoiser", "vae"])
    requests = [Request("a red circle", Size(32, 32), "dark"), Request("a star", Size(32, 32), "dark", index=1)]
    with_texts = embed_prompts(whole, requests)
    assert all(r.text is not None and not r.text.states.requires_grad for r in with_texts)
    for a, b in zip(_draw(whole, requests), _draw(cached, with_texts), strict=True):
        assert np.array_equal(a.pixels, b.pixels)


def test_each_text_is_encoded_once(tiny: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    encode = tiny.encode_text

    def counted(captions: list[str]) -> TextEmbedding:
        texts.extend(captions)
        return encode(captions)

    monkeypatch.setattr(tiny, "encode_text", counted)
    embed_prompts(tiny, [Request("a", Size(8, 8)), Request("b", Size(8, 8)), Request("a", Size(8, 8))])
    assert texts == ["a", "", "b"]


def test_sampling_keeps_the_mode_and_builds_no_graph(tiny: Family) -> None:
    unet = tiny.parts()["denoiser"]
    unet.train()
    try:
        _draw(tiny, [Request("a", Size(32, 32))])
        assert unet.training
        assert all(p.grad is None for p in unet.parameters())
    finally:
        unet.eval()


def test_bytes_are_rounded_and_clamped() -> None:
    pixels = torch.tensor([-1.0, -2.0, 0.0, 0.999, 1.0, 3.0]).reshape(1, 2, 3).expand(3, 2, 3)
    assert as_bytes(pixels)[..., 0].tolist() == [[0, 0, 128], [255, 255, 255]]
