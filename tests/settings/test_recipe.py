"""Settings of two sections that do not go together."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["run.steps=5", "run.epochs=1"], "give one of them"),
        (["run.whole_epochs=true"], "needs run.steps"),
        (["data.cache.text=true", "model.train=[denoiser, text_encoder]"], "train only the denoiser"),
        (["optim.part_lr={vae: 1}"], "which model.train does not train"),
        (["optim.part_lr={vae/*: 1}"], "names vae, which model.train does not train"),
        (["optim.part_lr={denoiser/a: 0}", "model.adapter.path=a.safetensors"], "which then get no adapter"),
        (["model.last_layers=2"], "write model.train=[denoiser, text_encoder]"),
        (["run.runtime=fsdp", "optim.optimizer.kind=adafactor"], "needs whole tensors; set one of "),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
