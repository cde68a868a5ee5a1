"""The tables of `tools/compare_with.toml`: renamed words in command lines, recipes, settings and names."""

from __future__ import annotations

from pathlib import Path

import pytest

import compared_words
from compared_words import Expected, Words

TABLE = """
[renamed.commands]
cp = "copy recipe"
[renamed.options]
"--weights=shadow" = "--weights=ema"
"--rescale" = "sample.guidance_rescale"
"--old-only" = ""
[renamed.settings]
"optim.ema" = "optim.average"
"optim.ema.rule" = "optim.average.kind"
"optim.lr" = "optim.lr.base"
"objective.pyramid_discount" = "objective.noise.pyramid"
"run.gone" = ""
[renamed.values]
"run.weight_dtype=alone" = "pure"
"model.train=text_encoder" = "text"
"run.save=none" = ""
[renamed.recipes]
tiny_cpu = "tiny"
[renamed.dialects]
mindone-sdxl = "mindone"
[renamed.names]
shadow = "ema"
exports = "models"
"""
WORDS = compared_words.parse_tables(TABLE).words


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("cp", "tiny_cpu"), ("copy", "recipe", "tiny")),
        (("sample", "run", "--weights=shadow"), ("sample", "run", "--weights=ema")),
        (("sample", "run", "--weights=raw"), ("sample", "run", "--weights=raw")),
        (("sample", "run", "--rescale=0.7", "--old-only"), ("sample", "run", "sample.guidance_rescale=0.7")),
        (("train", "x", "optim.ema.rule=ramp"), ("train", "x", "optim.average.kind=ramp")),
        (("train", "x", "optim.ema.decay=0.9"), ("train", "x", "optim.average.decay=0.9")),
        (("train", "x", "optim.ema={rule: ramp, decay: 0.99}"),
         ("train", "x", "optim.average.kind=ramp", "optim.average.decay=0.99")),
        (("train", "x", "objective={min_snr_gamma: 5, pyramid_discount: 0.5}"),
         ("train", "x", "objective.min_snr_gamma=5", "objective.noise.pyramid=0.5")),
        (("train", "x", "objective={min_snr_gamma: 5}"), ("train", "x", "objective={min_snr_gamma: 5}")),
        (("train", "x", "run.weight_dtype=pure"), ("train", "x", "run.weight_dtype=pure")),
        (("train", "x", "run.gone=1", "run.save=none"), ("train", "x")),
        (("train", "x", "model.train=[denoiser, text_encoder]"), ("train", "x", "model.train=[denoiser, text]")),
        (("train", "x", "sample.prompts+=[a, b]"), ("train", "x", "sample.prompts+=[a, b]")),
        (("train", "x", "data.path={world}/images"), ("train", "x", "data.path={world}/images")),
        (("convert", "run/exports/step-1", "one.safetensors"), ("convert", "run/models/step-1", "one.safetensors")),
        (("train", "--as", "mindone-sdxl", "run.gone=1", "--", "run.gone=1", "--weights=shadow"),
         ("train", "--as", "mindone", "--", "run.gone=1", "--weights=shadow")),
    ],
)  # fmt: skip
def test_renamed_words_apply_to_a_command_line(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    assert WORDS.translate_line(old) == new
    assert Words().translate_line(old) == old


def test_renamed_words_apply_to_a_recipe() -> None:
    recipe = {
        "schema": 1,
        "optim": {"ema": {"rule": "ramp"}},
        "run": {"weight_dtype": "alone", "gone": 2},
        "model": {"train": ["denoiser", "text_encoder"]},
    }
    assert WORDS.translate_recipe(recipe) == {
        "schema": 1,
        "optim": {"average": {"kind": "ramp"}},
        "run": {"weight_dtype": "pure"},
        "model": {"train": ["denoiser", "text"]},
    }


@pytest.mark.parametrize(
    ("path", "value", "pairs"),
    [
        ("optim.ema.rule", "ramp", [("optim.average.kind", "ramp")]),
        ("model.train.1", "text_encoder", [("model.train.1", "text")]),
        ("run.gone.inner", 1, []),
        ("optim.lr", 1, [("optim.lr.base", 1)]),
        ("optim.lr.base", 1, [("optim.lr.base", 1)]),
    ],
)
def test_compared_setting_is_renamed_once(path: str, value: object, pairs: list[tuple[str, object]]) -> None:
    assert list(WORDS.translate_setting(path, value)) == pairs


@pytest.mark.parametrize(
    ("old", "new"),
    [("val/loss_shadow", "val/loss_ema"), ("val/loss_ema", "val/loss_ema"), ("shadows", "shadows")],
)
def test_names_are_renamed_as_whole_words(old: str, new: str) -> None:
    assert WORDS.translate_name(old) == new


def test_longer_new_name_is_not_renamed_again() -> None:
    words = Words(names={"loss": "loss/total"})
    assert words.translate_name(words.translate_name("train/loss")) == "train/loss/total"
    assert words.restore_name("train/loss/total") == "train/loss"


def test_expected_difference_has_journey_kind_and_pattern() -> None:
    row = Expected("diffusers-*", "exported tensors", r"comfy\.safetensors", "new")
    assert row.matches("diffusers-sd", "exported tensors", "run/comfy.safetensors: only this tree writes it")
    assert not row.matches("sdxl", "exported tensors", "run/comfy.safetensors: only this tree writes it")
    assert not row.matches("diffusers-sd", "cache entries", "run/comfy.safetensors: only this tree writes it")
    assert not row.matches("diffusers-sd", "exported tensors", "run/a.safetensors: only this tree writes it")


def test_tree_without_the_table_has_no_renamed_words(tmp_path: Path) -> None:
    assert compared_words.read_tables(tmp_path) == compared_words.Tables(Words())


def test_table_of_this_tree_is_valid() -> None:
    words = compared_words.read_tables(Path(__file__).parents[2]).words
    assert words.options["--weights=shadow"] == "--weights=ema"
    with pytest.raises(TypeError):
        compared_words.parse_tables('[renamed.verbs]\na = "b"\n')


def test_cross_version_journeys_are_switched_off_with_a_reason() -> None:
    off = "[across_versions]\njudged = false\n"
    with pytest.raises(ValueError, match=r"write across_versions\.reason"):
        compared_words.parse_tables(off)
    assert compared_words.parse_tables(off + 'reason = "one index"').across_versions == "one index"
    assert compared_words.parse_tables("").across_versions == ""
