from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.diffusion.prediction import PREDICTIONS
from mezzotint.diffusion.schedule import Schedule
from mezzotint.diffusion.weighting import DEBIASED_PREDICTIONS, debiased, factor, min_snr

FORMS = ("prediction", "x0", "ratio")


@given(
    snr=st.floats(0, 3e4, width=32), gamma=st.floats(0.125, 50), kind=st.sampled_from(PREDICTIONS),
    form=st.sampled_from(FORMS),
)  # fmt: skip
def test_weights_are_finite_and_not_negative(snr: float, gamma: float, kind: str, form: str) -> None:
    weight = min_snr(torch.tensor([snr]), gamma, kind, form)
    assert weight.dtype == torch.float32
    assert torch.isfinite(weight).all()
    assert (weight >= 0).all()


def test_the_three_forms_differ_where_they_should() -> None:
    snr = torch.tensor([100.0, 4.5, 0.25])
    same = torch.tensor([0.05, 1.0, 1.0])
    for form in FORMS:
        torch.testing.assert_close(min_snr(snr, 5.0, "epsilon", form), same)
    torch.testing.assert_close(min_snr(snr, 5.0, "v", "prediction"), torch.tensor([5 / 101, 4.5 / 5.5, 0.2]))
    torch.testing.assert_close(min_snr(snr, 5.0, "v", "x0"), torch.tensor([5 / 101, 5 / 5.5, 1.0]))
    torch.testing.assert_close(min_snr(snr, 5.0, "v", "ratio"), same)
    torch.testing.assert_close(min_snr(snr, 5.0, "x0", "prediction"), torch.tensor([5.0, 4.5, 0.25]))
    torch.testing.assert_close(min_snr(snr, 5.0, "x0", "x0"), torch.ones(3))
    torch.testing.assert_close(min_snr(snr, 5.0, "x0", "ratio"), same)


@pytest.mark.parametrize(
    ("kind", "form", "expected"),
    [
        ("epsilon", "prediction", 0.0),
        ("epsilon", "x0", 0.0),
        ("epsilon", "ratio", 1.0),
        ("v", "prediction", 0.0),
        ("v", "x0", 1.0),
        ("v", "ratio", 1.0),
    ],
)
def test_pure_noise_has_the_documented_weight(kind: str, form: str, expected: float) -> None:
    snr = Schedule.scaled_linear().rescale_to_zero_terminal_snr().snr
    assert min_snr(snr, 5.0, kind, form)[-1].item() == expected


def test_average_weights_over_stable_diffusions_schedule() -> None:
    snr = Schedule.scaled_linear().snr
    epsilon, v = (min_snr(snr, 5.0, kind, "prediction") for kind in ("epsilon", "v"))
    assert epsilon.mean().item() == pytest.approx(0.9166, abs=1e-4)
    assert v.mean().item() == pytest.approx(0.2943, abs=1e-4)
    assert int((epsilon < 1).sum()) == 147


def test_unknown_names_are_refused() -> None:
    snr = torch.ones(2)
    with pytest.raises(ValueError, match="warp"):
        min_snr(snr, 5.0, "warp", "prediction")
    with pytest.raises(ValueError, match="soft"):
        min_snr(snr, 5.0, "v", "soft")
    with pytest.raises(ValueError, match="x0"):
        debiased(snr, "x0")


@given(snr=st.floats(0, 3e4, width=32), kind=st.sampled_from(DEBIASED_PREDICTIONS))
def test_debiased_weights_are_finite_and_not_negative(snr: float, kind: str) -> None:
    weight = debiased(torch.tensor([snr]), kind)
    assert weight.dtype == torch.float32
    assert torch.isfinite(weight).all()
    assert (weight >= 0).all()


def test_debiased_weights_are_those_of_the_formulas_up_to_an_snr_of_1000() -> None:
    snr = torch.tensor([0.25, 4.0, 1000.0, 2000.0])
    torch.testing.assert_close(debiased(snr, "epsilon"), torch.tensor([2.0, 0.5, 1000**-0.5, 1000**-0.5]))
    torch.testing.assert_close(debiased(snr, "v"), torch.tensor([0.8, 0.2, 1 / 1001, 1 / 1001]))
    torch.testing.assert_close(factor("v", snr, weighting="debiased", squared=False), debiased(snr, "v"))


def test_pure_noise_has_no_debiased_weight_for_epsilon_and_the_largest_for_v() -> None:
    snr = Schedule.scaled_linear().rescale_to_zero_terminal_snr().snr
    assert debiased(snr, "epsilon")[-1].item() == 0.0
    assert debiased(snr, "v")[-1].item() == 1.0
