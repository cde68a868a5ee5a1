"""Fixtures of `tests/journeys`: what is recorded of a whole run."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.families import sd, sdxl


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The parts that each loading of a model of Stable Diffusion or SDXL has given, networks alone."""
    calls: list[set[str]] = []

    def watch(family: Any) -> None:
        plain = family.load.__func__

        def watched(cls: Any, files: Any, only: Any = None, *forms: Any) -> Any:
            model = plain(cls, files, only, *forms)
            calls.extend([set(model.parts())] if model.parts() else [])
            return model

        monkeypatch.setattr(family, "load", classmethod(watched))

    watch(sd.Family)
    watch(sdxl.Family)
    return calls
