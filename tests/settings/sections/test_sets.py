"""`data.sets`: what a set takes from the shared settings, what is refused, and what may change on resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.resume_rules import find_differences
from mezzotint.settings.sections.data import DataSettings
from support.contradictions import contradiction


def sets_of(*sets: dict[str, Any], **shared: Any) -> tuple[Any, ...]:
    return DataSettings.model_validate({"sets": list(sets), **shared}).image_sets()


def test_set_takes_what_it_does_not_say_from_the_shared_settings() -> None:
    own = {"path": "b", "repeats": 3, "flip": 0.0, "captions": {"dropout": 0.0, "trigger": " sks "},
           "buckets": {"step": 8}, "resolution": [256, 512]}  # fmt: skip
    one, other = sets_of({"path": "a"}, own, flip=0.5, captions={"dropout": 0.1, "prefix": "photo,"}, repeats=2)
    shared = one.settings
    assert (shared.path, shared.repeats, shared.flip, shared.captions.dropout) == (Path("a"), 2, 0.5, 0.1)
    changed = other.settings
    assert (changed.path, changed.repeats, changed.flip, changed.captions.dropout) == (Path("b"), 3, 0.0, 0.0)
    assert (changed.captions.trigger, changed.captions.prefix, changed.buckets.step) == ("sks", "photo,", 8)
    assert [one.resolution for one in other.sizes] == [(256,), (512,)]
    assert (one.settings.sets, other.settings.sets) == ((), ())


def test_path_is_short_for_one_set_and_prior_path_for_class_images() -> None:
    settings = DataSettings.model_validate({"path": "a", "prior": {"path": "class"}, "captions": {"prefix": "sks"}})
    own, class_images = settings.image_sets()
    assert (own.settings.path, own.is_class, own.settings.captions.prefix) == (Path("a"), False, "sks")
    assert (class_images.settings.path, class_images.is_class) == (Path("class"), True)
    assert class_images.settings.captions.prefix == "", "class images do not get the words of the subject"
    assert [one.settings for one in DataSettings.model_validate({"path": "a"}).image_sets()] == [
        DataSettings.model_validate({"path": "a"})
    ]


def test_class_images_keep_the_words_of_their_own_set() -> None:
    _, other = sets_of(
        {"path": "a"}, {"path": "b", "class_images": True, "captions": {"trigger": "dog"}},
        captions={"trigger": "sks dog", "template": "{trigger}"}, mask={"source": "files", "path": "masks"},
    )  # fmt: skip
    assert (other.settings.captions.trigger, other.settings.captions.template) == ("dog", "")
    assert (other.settings.mask.source, other.settings.mask.path) == ("files", None)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["data.path=a", "data.sets=[{path: b}]"], "data.path and data.sets are both given"),
        (["data.sets=[{path: a, class_images: true}]"], "all data.sets are class images"),
        (["data.sets=[{path: a}, {path: b, resolution: 520}]"], "data.sets.1 (b): data.resolution (520) must be"),
        (["data.sets=[{path: a, captions: {template: x}}]"], "data.sets.0 (a): data.captions.template 'x' does not"),
        (["data.sets=[{path: a, batch_size: 2}, {path: b, class_images: true}]", "data.prior.balance=pairs"],
         "needs one batch size for all sets"),
        (["data.path=[a, b]"], "takes one value; write several in the entries of data.sets"),
        (["data.repeats=[1, 2]"], "takes one value"),
        (["data.resolution=[512, 768]", "data.buckets.shape=list", "data.buckets.sizes=sdxl"], "there are several"),
    ],
)  # fmt: skip
def test_conflicting_sets_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)


@pytest.mark.parametrize(
    ("sets", "rule"),
    [
        ("[{path: elsewhere, repeats: 2}, {path: b}]", "free"),
        ("[{path: a, repeats: 3}, {path: b}]", "allow"),
        ("[{path: a, repeats: 2}, {path: b, flip: 0.5}]", "allow"),
        ("[{path: a, repeats: 2}]", "allow"),
    ],
)
def test_folders_of_sets_may_move_and_everything_else_is_refused_on_resume(sets: str, rule: str) -> None:
    recorded = read_text("data: {sets: [{path: a, repeats: 2}, {path: b}]}").recipe
    [difference] = find_differences(
        recorded.model_dump(mode="json", by_alias=True), read_text(f"data: {{sets: {sets}}}").recipe
    )
    assert (difference.path, difference.change) == ("data.sets", rule)


def test_keys_of_a_set_are_proposed_and_types_checked() -> None:
    for setting, words in (("repaets: 3", "did you mean data.sets.0.repeats?"),
                           ("captions: {prefx: 3}", "did you mean data.sets.0.captions.prefix?"),
                           ("repeats: '3'", "must be a number, got '3'; write it without quotes")):  # fmt: skip
        with pytest.raises(RecipeError) as caught:
            read_text(f"data: {{sets: [{{path: a, {setting}}}]}}")
        assert words in str(caught.value)
