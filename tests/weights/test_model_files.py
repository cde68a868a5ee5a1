"""Files of any model: random weights by seed, and the prediction of the denoiser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.errors import WeightsError
from mezzotint.families.sd import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.weights.folder.model_folder import shipped_folder
from support.sd_folder import FOLDER, edit


def test_random_weights_depend_only_on_the_seed() -> None:
    settings = ModelSettings(path=shipped_folder("tiny-sd"), weights="random")
    one, same, other = (Family.of(settings, only=["text_encoder"], seed=s) for s in (1, 1, 2))
    states = [f.encode_text(["a red circle"]).states for f in (one, same, other)]
    assert torch.equal(states[0], states[1])
    assert not torch.allclose(states[0], states[2])
    assert any("vae" in note for note in Family.of(settings, only=["vae"]).notes)
    names = [Family.files.of(settings, s).fingerprint("denoiser") for s in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert Family.files.of(settings, 1).text_identity() != Family.files.of(settings, 2).text_identity()


def test_random_weights_can_be_requested_for_a_trained_model(family: Family) -> None:
    random = Family.of(ModelSettings(path=FOLDER, weights="random"), only=["denoiser"])
    pairs = zip(random.parts()["denoiser"].parameters(), family.parts()["denoiser"].parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in pairs)


def test_prediction_is_taken_from_the_recipe_or_the_scheduler(copy: Path) -> None:
    def prediction(**settings: Any) -> str:
        return Family.of(ModelSettings(path=copy, **settings), only=[]).prediction

    assert prediction() == "epsilon"
    edit(copy / "scheduler" / "scheduler_config.json", prediction_type="v_prediction")
    assert prediction() == "v"
    assert prediction(prediction="epsilon") == "epsilon"
    edit(copy / "scheduler" / "scheduler_config.json", prediction_type="sample")
    with pytest.raises(WeightsError, match="'sample'") as caught:
        prediction()
    assert caught.value.code == "E1409"
