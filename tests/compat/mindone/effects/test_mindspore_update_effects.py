"""Rows of AdamWeightDecay, of named decay groups, and of cyclic rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.training import lr

Prepare = Callable[..., Any]
PLAIN = {"optim__clip__norm": "null", "optim__ema__rule": "none"}
KIND = {"optim__optimizer__kind": "adam-weight-decay"}


def factor(step: int, **schedule: Any) -> float:
    words = [f"optim.schedule.{name}={value}" for name, value in schedule.items()]
    return lr.factor(read_text("schema: 1", overrides=words).recipe.optim.schedule, step, 100)


# breaks if the moments are bias-corrected, or ε, the decay or a β differs
@pytest.mark.slow
@pytest.mark.effect("optim.optimizer.kind", "optim.optimizer.eps", "optim.optimizer.betas")
def test_adam_weight_decay_has_no_bias_correction(prepare: Prepare) -> None:
    settings = {"optim__optimizer__betas": [0.9, 0.98], "optim__optimizer__weight_decay": 0.1}
    ready = prepare(optim__lr=1e-3, **KIND, **settings, **PLAIN)
    means: dict[str, Tensor] = {}
    squares: dict[str, Tensor] = {}
    for _ in range(3):
        step = ready.step()
        for name, grad in step.grads.items():
            means[name] = 0.9 * means.get(name, torch.zeros_like(grad)) + 0.1 * grad
            squares[name] = 0.98 * squares.get(name, torch.zeros_like(grad)) + 0.02 * grad**2
            way = means[name] / (squares[name].sqrt() + 1e-6) + 0.1 * step.before[name]
            torch.testing.assert_close(step.moved(name), -1e-3 * way, rtol=2e-3, atol=2e-7)
            torch.testing.assert_close(step.mean[name], means[name], rtol=1e-4, atol=1e-8)
    first = prepare(optim__lr=1e-3, optim__optimizer__betas=[0.9, 0.98], optim__optimizer__weight_decay=0, **KIND,
                    **PLAIN).step()  # fmt: skip
    assert first.largest("denoiser") == pytest.approx(1e-3 * 0.1 / 0.02**0.5, rel=1e-3), "0.707 of the rate"
    coarse = prepare(
        optim__lr=1e-3, optim__optimizer__eps=1.0, optim__optimizer__weight_decay=0, **KIND, **PLAIN
    ).step()
    assert coarse.largest("denoiser") < 0.1 * first.largest("denoiser")


# breaks if a rule selects other parameters than it names, decays those, or an unknown rule is accepted
@pytest.mark.effect("optim.optimizer.no_decay")
def test_decay_rules_exclude_norms_and_biases_or_as_mindone(prepare: Prepare) -> None:
    results = {}
    for rule in ("@norm-and-bias", "@mindone"):
        ready = prepare(optim__optimizer__no_decay=rule, optim__optimizer__weight_decay=0.5, **KIND, **PLAIN)
        groups = {group.name: group for group in ready.trainer.model.update.groups}
        assert {name: group.weight_decay for name, group in groups.items()} == {
            "denoiser": 0.5, "denoiser.no_decay": 0.0
        }  # fmt: skip
        results[rule] = set(groups["denoiser.no_decay"].names)
        assert results[rule] | set(groups["denoiser"].names) == ready.trainer.model.update.masters.keys()
    norms, mindone = results["@norm-and-bias"], results["@mindone"]
    assert mindone < norms
    assert all(name.endswith("bias") or "norm" in name for name in norms)
    # of residual blocks the norms, scale and shift, decay there, by the names that MindSpore gives them
    assert {name for name in norms - mindone if "attentions" in name or "transformer" in name} == set()
    assert "denoiser/conv_norm_out.bias" in norms - mindone
    assert "denoiser/conv_norm_out.weight" in norms - mindone
    assert any(".norm1.bias" in name and "resnets" in name for name in norms - mindone)
    with pytest.raises(RecipeError, match=r"unknown rule '@bias'; use @norm-and-bias, @mindone"):
        prepare(optim__optimizer__no_decay="@bias")
