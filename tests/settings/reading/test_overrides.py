"""`key=value` from the command line, applied to what a file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.settings.base import Every
from mezzotint.settings.reading.read import (
    read_text,
)
from support.messages import only_problem


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("optim.lr=1e-6", "optim.lr", 1e-6),
        ("optim.lr=010", "optim.lr", 10.0),
        ("run.name=42", "run.name", "42"),
        ("run.name=true", "run.name", "true"),
        ("run.steps=null", "run.steps", None),
        ("run.folder=null", "run.folder", None),
        ("run.save.every=2 epochs", "run.save.every", (Every(2, "epochs"),)),
        ("sample.prompts=a fox: red, #1", "sample.prompts", ("a fox: red, #1",)),
        ("sample.prompts=[a, b]", "sample.prompts", ("a", "b")),
        ("sample.prompts+=1984", "sample.prompts", ("1984",)),
        ("sample.negative_prompt=", "sample.negative_prompt", ""),
        ("sample.negative_prompt='null'", "sample.negative_prompt", "null"),
        ("model.train+=text_encoder", "model.train", ("denoiser", "text_encoder")),
        ("objective.timesteps.0=100", "objective.timesteps", (100, 1000)),
        ("optim.part_lr.denoiser=1e-3", "optim.part_lr", {"denoiser": 1e-3}),
        ("optim.part_lr={denoiser: 1e-3}", "optim.part_lr", {"denoiser": 1e-3}),
        ("optim.optimizer.betas=[0.8, 0.9]", "optim.optimizer.betas", (0.8, 0.9)),
        ("optim.schedule.points+=[500, 0.1]", "optim.schedule.points", ((500, 0.1),)),
        ("optim.schedule.points+=[[5, 0.1], [6, 0]]", "optim.schedule.points", ((5, 0.1), (6, 0.0))),
        ("optim={lr: 1e-3, clip: {norm: null}}", "optim.clip.norm", None),
        ("data.path=/a=b", "data.path", Path("/a=b")),
        ("schema=1", "version", 1),
    ],
)
def test_every_setting_is_an_option(override: str, path: str, value: object) -> None:
    value_there: object = read_text("run: {log_every: 3}", overrides=[override]).recipe
    for word in path.split("."):
        value_there = getattr(value_there, word)
    assert value_there == value


def test_later_options_win_and_groups_keep_other_keys() -> None:
    text = "optim: {accumulation: 4, clip: {scope: part}}\nsample: {prompts: [a, b]}\n"
    recipe = read_text(
        text, overrides=["optim.lr=1", "optim={lr: 2, clip: {norm: 5}}", "sample.prompts.1=c", "sample.prompts+=[d]"]
    ).recipe
    assert (recipe.optim.lr, recipe.optim.accumulation) == (2, 4)
    assert (recipe.optim.clip.norm, recipe.optim.clip.scope) == (5, "part")
    assert recipe.sample.prompts == ("a", "c", "d")


@pytest.mark.parametrize(
    ("override", "where", "code", "words"),
    [
        ("optim.lr", "optim.lr", "E1008", "write it like optim.lr=VALUE"),
        ("--lr", "--lr", "E1008", "is not key=value"),
        ("=5", "=5", "E1008", "is not key=value"),
        ("opti.lr=1", "opti.lr", "E1001", "did you mean optim.lr?"),
        ("resoluton=1", "resoluton", "E1001", "did you mean data.resolution?"),
        ("optim.lr.x=1", "optim.lr.x", "E1001", "has a single value"),
        ("sample.prompts.7=x", "sample.prompts.7", "E1008", "to append, write sample.prompts+=VALUE"),
        ("sample.prompts.first=x", "sample.prompts.first", "E1008", "entries count from 0"),
        ("optim.lr+=1", "optim.lr", "E1008", "is not a list"),
        ("optim=5", "optim", "E1002", "is a group of settings"),
        ("sample.prompts=[a", "sample.prompts", "E1004", "not closed"),
        ("optim.lr=x", "optim.lr", "E1002", "must be a number, got 'x'"),
        ("data.path=", "data.path", "E1003", "is empty"),
        ("run.folder=", "run.folder", "E1003", "is empty"),
        ("data.cache.path=", "data.cache.path", "E1003", "is empty"),
        ("model.path=", "model.path", "E1003", "is empty"),
        ("sample.prompts=hf_" + "a" * 34, "sample.prompts", "E1009", "access token"),
    ],
)
def test_invalid_option_is_returned(override: str, where: str, code: str, words: str) -> None:
    problem = only_problem("run: {log_every: 3}", override)
    assert (problem.where, problem.code, problem.line) == (where, code, None)
    assert words in f"{problem.message}; {problem.remedy}"
