"""Chroma compared with diffusers' pipeline and network, which are run here: guidance, the mask of the text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.chroma.pipeline_chroma import ChromaPipeline
from torch import Tensor

from mezzotint.families.base import ModelFamily
from mezzotint.families.chroma import Family
from mezzotint.sampling.requests import Request, Sampling, initial_noise
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.stages import Noised, TextEmbedding

MODEL = Path(__file__).parents[1] / "parity" / "data" / "flow" / "chroma" / "model"
PROMPTS = ["a red circle", "two birds above the old wall, painted in oil"]
SIZE = Size(64, 96)


@pytest.fixture(scope="module")
def family() -> ModelFamily:
    return Family.of(ModelSettings(family="chroma", path=MODEL))


@pytest.fixture(scope="module")
def pipeline() -> Any:
    opened = ChromaPipeline.from_pretrained(str(MODEL), local_files_only=True)
    opened.set_progress_bar_config(disable=True)
    return opened


def encoded(pipeline: Any, prompts: list[str]) -> tuple[Tensor, Tensor]:
    """The pipeline's text and its mask as booleans; with its mask of floats, its attention masks nothing."""
    states, _, mask, *_ = pipeline.encode_prompt(prompts, do_classifier_free_guidance=False)
    return states, mask.bool()


def predicted(family: ModelFamily, text: TextEmbedding, seed: int = 0) -> Tensor:
    x = torch.randn(1, 4, 8, 12, generator=torch.Generator().manual_seed(seed)).expand(len(text.states), -1, -1, -1)
    noised = Noised(x, x, x, x, torch.full((len(x),), 700.0), torch.full((len(x),), 0.7))
    return family.predict(noised, family.condition(text, None))


@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_first_step_equals_that_of_the_pipeline(family: ModelFamily, pipeline: Any, guidance: float) -> None:
    negatives = ["dark", "a small grey photo of one dog and three cats"]
    requests = [
        Request(prompt, SIZE, seed=4, negative=negative) for prompt, negative in zip(PROMPTS, negatives, strict=True)
    ]
    settings = SampleSettings(steps=1, guidance=(guidance,), solver="euler")
    ours = sample_latents(family, requests, Sampling(family.schedule, family.prediction, "cpu", settings))
    tokens = pipeline._pack_latents(initial_noise(family, requests), 2, 4, SIZE.height // 8, SIZE.width // 8)
    (states, mask), (negative_states, negative_mask) = encoded(pipeline, PROMPTS), encoded(pipeline, negatives)
    theirs = pipeline(
        prompt_embeds=states, prompt_attention_mask=mask, negative_prompt_embeds=negative_states,
        negative_prompt_attention_mask=negative_mask, height=SIZE.height, width=SIZE.width, num_inference_steps=1,
        guidance_scale=guidance, latents=tokens, output_type="latent",
    ).images  # fmt: skip
    theirs = pipeline._unpack_latents(theirs, SIZE.height, SIZE.width, pipeline.vae_scale_factor)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_one_padding_token_is_attended_to(family: ModelFamily) -> None:
    text = family.encode_text(PROMPTS)
    counts, _ = family.token_counts(PROMPTS)
    assert text.mask is not None
    assert text.mask.sum(1).tolist() == list(text.lengths or ()) == [count + 1 for count in counts]
    plain = predicted(family, text)
    for position, is_seen in ((counts[0] - 1, True), (counts[0], True), (counts[0] + 1, False)):
        states = text.states.clone()
        states[0, position] += 1.0
        assert torch.equal(predicted(family, replace(text, states=states)), plain) is not is_seen


@torch.no_grad()
def test_caption_of_full_length_has_no_padding_token() -> None:
    settings = ModelSettings.model_validate({"family": "chroma", "path": MODEL, "chroma": {"text_tokens": 16}})
    text = Family.of(settings).encode_text(["red " * 40, "a"])
    assert text.lengths == (16, 3)


def test_gradients_of_a_padded_batch_are_those_of_its_samples(family: ModelFamily) -> None:
    """Rows of the attention that are masked as a whole have no effect on gradients."""
    with torch.no_grad():
        texts = [family.encode_text([prompt]) for prompt in PROMPTS]
        both = family.encode_text(PROMPTS)
    parameters = dict(family.parts()["denoiser"].named_parameters())

    def gradients(batches: list[TextEmbedding]) -> dict[str, Tensor]:
        loss = sum(predicted(family, batch).square().sum() for batch in batches)
        assert isinstance(loss, Tensor)
        return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))

    expected = gradients(texts)
    for name, gradient in gradients([both]).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4, msg=name)
