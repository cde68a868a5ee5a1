"""Every key of a job file: those that act, each with what it changes; those without effect, refused, or waiting."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import changed, job, notes, problems
from key_cases import ACTS, BESIDE, path_of

from mezzotint.compat.ai_toolkit._model_rows import DATASETS, MODEL
from mezzotint.compat.ai_toolkit._rows import SAMPLES, TRAINING
from mezzotint.compat.kit.dialect import Row

ELSEWHERE = {
    "train.bypass_guidance_embedding",
    "datasets.dataset_path",
    "type", "datasets", "train.noise_scheduler", "train.content_or_style", "train.train_unet", "model.arch",
    "train.lr_scheduler_params.factor", "model.is_xl", "model.is_v3", "model.is_flux", "datasets.type",
    "datasets.is_reg", "datasets.loss_multiplier", "datasets.shrink_video_to_frames", "samples.prompt",
    *(f"model.is_{name}" for name in ("pixart", "pixart_sigma", "auraflow", "lumina2", "ssd", "vega")),
}  # fmt: skip
"""Keys with tests of their own."""

ROWS: dict[str, Row] = (
    {row.flag: row for row in (*TRAINING, *MODEL)}
    | {f"datasets.{row.flag}": row for row in DATASETS}
    | {f"samples.{row.flag}": row for row in SAMPLES}
)


def of(*outcomes: str) -> list[str]:
    return [key for key, row in ROWS.items() if row.outcome in outcomes]


def other(row: Row) -> Any:
    """A value that is not the default."""
    if row.choices:
        return next(choice for choice in row.choices if choice != row.default)
    if row.form == "switch":
        return not row.default
    if row.form in ("texts", "numbers"):
        return [7] if row.form == "numbers" else ["7"]
    return 7 if row.form in ("whole", "number") else "7"


def test_each_acting_key_has_a_case() -> None:
    assert ACTS.keys() | ELSEWHERE == set(of("mapped", "computed"))
    assert not ACTS.keys() & ELSEWHERE
    assert BESIDE.keys() <= ROWS.keys()


@pytest.mark.parametrize("key", list(ACTS))
def test_key_changes_only_its_settings(key: str) -> None:
    value, expected = ACTS[key]
    assert changed({path_of(key): value}, BESIDE.get(key)) == expected


@pytest.mark.parametrize("key", of("without effect"))
def test_key_without_effect_is_noted(key: str) -> None:
    change, beside = {path_of(key): other(ROWS[key])}, BESIDE.get(key)
    assert changed(change, beside) == {}
    assert notes(change, beside) == [f"{path_of(key)} in job.yaml: {ROWS[key].about}"]


@pytest.mark.parametrize("key", of("refused", "waits"))
def test_refused_and_waiting_keys_are_errors_with_their_line(key: str) -> None:
    row = ROWS[key]
    found = problems(job({**BESIDE.get(key, {}), path_of(key): other(row)}))
    [(_, code, message, line)] = [one for one in found if one[0] == f"{path_of(key)} in job.yaml"]
    waiting = f"needs {row.feature}, which Mezzotint does not have yet; leave it out"
    assert (code, message) == ("E1018", waiting if row.feature else row.about)
    assert line is not None
