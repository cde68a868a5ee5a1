"""Rows of training SDXL: both text encoders with separate rates, recomputing, another attention kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

Prepare = Callable[..., Any]
ENCODERS = ("text_encoder", "text_encoder_2")
PLAIN = {"optim__clip__norm": "null", "optim__ema__rule": "none", "optim__optimizer__weight_decay": 0}


@pytest.fixture
def settings(sdxl_folder: Path) -> dict[str, Any]:
    return {"model__family": "sdxl", "model__path": sdxl_folder, "model__weights": "files", **PLAIN}


# breaks if an encoder is not trained, uses another's rate, or changes weights that have no part in the result
@pytest.mark.effect("model.train", "optim.part_lr")
def test_both_text_encoders_train_at_their_own_rates(prepare: Prepare, settings: dict[str, Any]) -> None:
    rates = {"text_encoder": 4e-3, "text_encoder_2": 2e-3}
    trained = {"model__train": ["denoiser", *ENCODERS], "data__cache__text": False}
    ready = prepare(
        optim__lr=1e-3, optim__part_lr=rates, optim__optimizer__no_decay="@norm-and-bias", **trained, **settings
    )
    step = ready.step()
    assert step.report.rates | rates == step.report.rates
    assert {name.split("/")[0] for name in step.grads} == {"denoiser", *ENCODERS}
    for part, rate in {"denoiser": 1e-3, **rates}.items():
        assert step.largest(part) == pytest.approx(rate, rel=1e-3)
    # uses the states before the last layer, and of the second encoder also the pooled text, from its last layer
    still = {name for name in step.after if not step.moved(name).any()}
    assert {name.split("/")[0] for name in still} <= {"text_encoder", "text_encoder_2"}
    assert any("layers" in name for name in still if name.startswith("text_encoder/"))
    assert step.largest("text_encoder_2") > 0
    assert step.grads["text_encoder_2/text_projection.weight"].any()


# breaks if recomputing changes results, or nothing is recomputed
@pytest.mark.effect("run.gradient_checkpointing.enabled", "model.attention")
def test_checkpointing_and_math_attention_keep_gradients(prepare: Prepare, settings: dict[str, Any]) -> None:
    plain = prepare(**settings)
    again = prepare(run__gradient_checkpointing__enabled=True, **settings)
    maths = prepare(model__attention="math", **settings)
    assert (plain.job.model.recomputed_blocks, again.job.model.recomputed_blocks > 3) == (0, True)
    first, second, third = (ready.step() for ready in (plain, again, maths))
    for name, grad in first.grads.items():
        assert torch.equal(second.grads[name], grad)
        torch.testing.assert_close(third.grads[name], grad, rtol=1e-3, atol=1e-6)
    assert third.report.loss == pytest.approx(first.report.loss, rel=1e-5)
