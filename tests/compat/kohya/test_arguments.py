"""Arguments of adapters and optimizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from kohya_commands import refusal, settings

from mezzotint.compat.kit.updates import SCHEDULES
from mezzotint.compat.kohya._arguments import LYCORIS, NETWORK
from mezzotint.compat.kohya._optim import OPTIMIZERS
from mezzotint.compat.kohya.dialect import DIALECT

GUIDE = (Path(DIALECT.compute.__code__.co_filename).parent / "guide.md").read_text("utf-8")


def test_guide_names_all_arguments_optimizers_and_schedules() -> None:
    acting = {row.flag for row in LYCORIS if row.outcome != "waits"}
    names = {*acting, *(row.flag for row in NETWORK), *OPTIMIZERS, *SCHEDULES}
    assert {name for name in names if f"`{name}`" not in GUIDE} == set()


def test_rows_have_reasons() -> None:
    assert all(row.about for row in (*NETWORK, *LYCORIS))
    assert all(bool(row.feature) == (row.outcome == "waits") for row in (*NETWORK, *LYCORIS))


@pytest.mark.parametrize("row", [row for row in NETWORK if row.outcome == "waits"], ids=lambda row: row.flag)
def test_awaited_argument_names_its_feature(row: object) -> None:
    flag, feature, form = (getattr(row, name) for name in ("flag", "feature", "form"))
    word = f"{flag}={'True' if form == 'switch' else '0.5'}"
    message = f"{flag} needs {feature}, which Mezzotint does not have yet"
    assert refusal("train_network", "--network_args", word) == [("--network_args", "E1018", message)]


@pytest.mark.parametrize("word", ["rank_dropout=0.0", "loraplus_lr_ratio=0", "train_t5xxl=False", "verbose=True"])
def test_argument_that_asks_for_nothing_is_accepted(word: str) -> None:
    assert settings("train_network", "--network_args", word) == settings("train_network")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--network_args", "conv_dm=8"], "E1016", "unknown argument conv_dm"),
        (["--network_args", "conv_dim="], "E1017", "conv_dim= has no value"),
        (["--network_args", "algo=loha"], "E1016", "unknown argument algo"),
        (["--network_module=lycoris.kohya", "--network_args", "algo=boft"], "E1018",
         "algo=boft needs LyCORIS variants, which Mezzotint does not have yet"),
        (["--network_module=lycoris.kohya", "--network_args", "algo=lohaa"], "E1017",
         "algo takes lora, locon, loha, lokr, dylora, glora, full, ia3, diag-oft, boft, tlora, got 'lohaa'; did you "
         "mean loha?"),
        (["--optimizer_args", "weight_decays=0.1"], "E1016", "unknown argument weight_decays"),
        (["--optimizer_args", "weight_decay=lots"], "E1017",
         "weight_decay must be a number, got lots"),
        (["--optimizer_args", "betas=0.9"], "E1017", "betas must be two numbers, got 0.9"),
        (["--optimizer_args", "eps=True"], "E1017", "eps must be a number, got True"),
        (["--optimizer_type=Prodigy", "--optimizer_args", "decouple=1"], "E1017",
         "decouple must be True or False, got 1"),
        (["--optimizer_type=Adafactor", "--optimizer_args", "eps=1"], "E1017", "eps must be two numbers, got 1"),
    ],
)  # fmt: skip
def test_wrong_argument_is_named(words: list[str], code: str, message: str) -> None:
    assert refusal("train_network", *words) == [(words[-2], code, message)]
