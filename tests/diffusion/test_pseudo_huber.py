from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.diffusion.pseudo_huber import exponential_c, pseudo_huber, smooth_l1, snr_c

CS = st.floats(2.0**-10, 10.0, width=32)


@given(error=st.floats(-1e3, 1e3, width=32), c=CS)
def test_losses_are_the_formulas(error: float, c: float) -> None:
    errors, cs = torch.tensor([error]), torch.tensor([c])
    expected = 2.0 * (math.hypot(error, c) - c)
    assert smooth_l1(errors, cs).item() == pytest.approx(expected, rel=1e-5, abs=1e-9)
    assert pseudo_huber(errors, cs).item() == pytest.approx(c * expected, rel=1e-5, abs=1e-9)


def test_small_errors_are_squared_and_large_ones_are_linear() -> None:
    c = torch.tensor([0.5])
    assert pseudo_huber(torch.tensor([1e-4]), c).item() == pytest.approx(1e-8, rel=1e-4)
    assert pseudo_huber(torch.tensor([1e4]), c).item() == pytest.approx(1e4, rel=1e-4)
    assert smooth_l1(torch.tensor([1e-4]), c).item() == pytest.approx(2e-8, rel=1e-4)
    assert smooth_l1(torch.tensor([-1e4]), c).item() == pytest.approx(2e4, rel=1e-4)


def test_gradients_are_finite_at_an_error_of_zero() -> None:
    error = torch.zeros(3, requires_grad=True)
    (smooth_l1(error, torch.tensor(1e-30)) + pseudo_huber(error, torch.tensor(0.1))).sum().backward()
    assert error.grad is not None
    assert error.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("delta", [0.1, 2.0])
def test_parameter_goes_from_one_to_delta(delta: float) -> None:
    torch.testing.assert_close(
        exponential_c(delta, torch.tensor([0.0, 0.5, 1.0])), torch.tensor([1.0, delta**0.5, delta])
    )
    torch.testing.assert_close(
        snr_c(delta, torch.tensor([0.0, 1.0, torch.inf])), torch.tensor([1.0, (1 - delta) / 4 + delta, delta])
    )
