"""Single files of Stable Diffusion 1.x and 2.x: averaged copies and extra tensors."""

from __future__ import annotations

import pytest

from mezzotint.weights.layouts.sd import LAYOUT
from support.layout_names import table_of


def test_ema_names_have_no_dots_and_are_unique() -> None:
    names = [LAYOUT.average(entry.foreign) for entry in table_of("sd1", "unet").entries]
    assert len(set(names)) == 686
    assert "model_ema.diffusion_modelinput_blocks00weight" in names


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("betas", True),
        ("sqrt_recipm1_alphas_cumprod", True),
        ("posterior_mean_coef2", True),
        ("model_ema.num_updates", True),
        ("cond_stage_model.transformer.text_model.embeddings.position_ids", True),
        ("cond_stage_model.model.transformer.resblocks.23.ln_1.weight", True),
        ("cond_stage_model.model.text_projection", True),
        ("first_stage_model.loss.discriminator.main.0.weight", True),
        ("model.diffusion_model.input_blocks.99.0.weight", False),
        ("something.else", False),
    ],
)
def test_usual_extra_tensors_are_known(name: str, known: bool) -> None:
    assert LAYOUT.is_extra(name) is known
