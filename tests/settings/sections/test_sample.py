"""What is drawn: solvers by the names that user interfaces give them."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text


@pytest.mark.parametrize(
    ("written", "solver", "sigmas"),
    [
        ("DPM++ 2M Karras", "dpm++", "karras"), ("dpmpp_2m_karras", "dpm++", "karras"),
        ("DPM++ 2M", "dpm++", "schedule"), ("Euler a", "euler-a", "schedule"), ("euler_a", "euler-a", "schedule"),
        ("k_euler_a", "euler-a", "schedule"), ("Heun", "heun", "schedule"), ("DDIMScheduler", "ddim", "schedule"),
    ],
)  # fmt: skip
def test_solver_names_of_user_interfaces_are_accepted(written: str, solver: str, sigmas: str) -> None:
    drawn = read_text("schema: 1", overrides=[f"sample.solver={written}"]).recipe.sample
    assert (drawn.solver, drawn.sigmas) == (solver, sigmas)


def test_explicit_levels_override_a_named_schedule() -> None:
    drawn = read_text("sample: {solver: DPM++ 2M Karras, sigmas: edm}").recipe.sample
    assert (drawn.solver, drawn.sigmas) == ("dpm++", "edm")
    with pytest.raises(RecipeError, match="got 'Zorp Karras'"):
        read_text("sample: {solver: Zorp Karras}")
