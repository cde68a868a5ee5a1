"""Recipes side by side: equal meanings are equal, others are not."""

from __future__ import annotations

import pytest

from mezzotint.compat.kit.comparing import describe, find_differences
from mezzotint.settings.reading.read import read_text

BASE = (
    "schema: 1\nmodel: {family: sd, train: [denoiser, text_encoder], adapter: {kind: lora}}\n"
    "data: {path: photos}\nrun: {steps: 9}\noptim: {lr: 1e-4}\nsample: {prompts: [a fox]}\n"
)


def compare(first: str, second: str) -> set[str]:
    """The paths whose values differ. first, second: changes of a recipe, separated by semicolons."""
    one, other = (read_text(BASE, "a", list(filter(None, changes.split("; ")))).recipe for changes in (first, second))
    return find_differences(describe(one), describe(other))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("model.adapter.rank=8", "model.adapter.rank=8; model.adapter.alpha=8"),
        ("model.adapter.targets=[attention]",
         "model.adapter.targets=[denoiser/attention, text_encoder/attention]"),
        ("", "run.folder=runs/run"),
        ("", "sample.size=[512, 512]"),
        ("optim.part_lr={denoiser: 1e-3}", "optim.lr=1e-3; optim.part_lr={text_encoder: 1e-4}"),
        ("data.resolution=[512, 640]",
         "data.path=null; data.sets=[{path: photos, resolution: 512}, {path: photos, resolution: 640}]"),
    ],
)  # fmt: skip
def test_equal_meanings_are_equal(first: str, second: str) -> None:
    assert compare(first, second) == set()


@pytest.mark.parametrize(
    ("first", "second", "paths"),
    [
        ("", "model.adapter.targets=[denoiser/attention+mlp, text_encoder/attention]", {"model.adapter.targets"}),
        ("", "model.adapter.targets=[denoiser/attention+mlp]", {"model.adapter.targets"}),
        ("", "optim.part_lr={denoiser: 1e-3}", {"optim.lr", "optim.part_lr"}),
        ("data.buckets={shape: range}", "data.buckets={shape: range, min_side: 128}", {"data.buckets.min_side"}),
        ("", "sample.size=[512, 640]", {"sample.size"}),
        ("", "data.resolution_mode=random; data.resolution=[512, 640]", {"data.resolution", "data.resolution_mode"}),
    ],
)
def test_different_meanings_differ(first: str, second: str, paths: set[str]) -> None:
    assert compare(first, second) == paths
