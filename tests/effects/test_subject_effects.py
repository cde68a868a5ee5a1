"""Rows of `data.prior`: class images next to those of a subject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.errors import DatasetError
from mezzotint.families.base import batch_latents
from mezzotint.tasks.cache import class_images
from support.contradictions import contradiction

Make = Callable[..., Any]


def of_class(batch: Any) -> list[bool]:
    return [bool(one) for one in batch.is_class]


# breaks if class images are not distinguished from others, are held out, or get the trigger word
@pytest.mark.effect("data.prior.path")
def test_prior_path_is_trained_and_never_held_out(feed: Make, noisy: Make, tmp_path: Path) -> None:
    own, other = noisy(tmp_path / "own", [(32, 32)] * 4), noisy(tmp_path / "class", [(32, 32)] * 4)
    fed = feed(own, prior__path=str(other), prior__balance="none", holdout__fraction=0.5, max_samples=4,
               captions__prefix="sks")  # fmt: skip
    batches = fed.batches()
    keys = {key: one for b in batches for key, one in zip(b.keys, of_class(b), strict=True)}
    assert {key for key, one in keys.items() if one} == {f"1/00{i}.png" for i in range(4)}
    assert len([key for key, one in keys.items() if not one]) == 2 == len(fed.dataset.held)
    captions = {caption for b in batches for caption in b.captions}
    assert {one for one in captions if not one.startswith("sks ")} == {f"image {i}" for i in range(4)}
    assert feed(own).batches()[0].is_class is None
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="there is no usable class image, only 4 other images") as caught:
        feed(own, prior__path=str(tmp_path / "empty"))
    assert caught.value.code == "E1453"


# breaks if the number does not reach the loss, or changes that of other images
@pytest.mark.effect("data.prior.weight")
def test_prior_weight_multiplies_the_loss_of_class_images(feed: Make, noisy: Make, tmp_path: Path) -> None:
    own, other = noisy(tmp_path / "own", [(32, 32)] * 4), noisy(tmp_path / "class", [(32, 32)] * 4)
    weights = {
        (weight, one)
        for b in feed(own, prior__path=str(other), prior__weight=0.25).batches()
        for weight, one in zip(b.weight.tolist(), of_class(b), strict=True)
    }
    assert weights == {(1.0, False), (0.25, True)}
    assert "no effect without class images" in contradiction("data.prior.weight=0.5")


# breaks if class images always lose their captions, or the subject's keep theirs
@pytest.mark.effect("data.prior.dropout")
def test_prior_dropout_does_not_drop_class_captions(feed: Make, noisy: Make, tmp_path: Path) -> None:
    own, other = noisy(tmp_path / "own", [(32, 32)] * 4), noisy(tmp_path / "class", [(32, 32)] * 4)
    for holds in (True, False):
        batches = feed(own, prior__path=str(other), prior__dropout=holds, captions__dropout=1.0).batches()
        empty = {(caption == "", one) for b in batches for caption, one in zip(b.captions, of_class(b), strict=True)}
        assert empty == {(True, False), (holds, True)}


# breaks if folders of class images lose the repeats in their names, or the subject's folders the weights
@pytest.mark.effect("data.prior.path", "data.prior.weight")
def test_class_images_are_read_from_repeat_folders(feed: Make, noisy: Make, tmp_path: Path) -> None:
    noisy(tmp_path / "own" / "4_sks dog", [(32, 32)])
    noisy(tmp_path / "reg" / "2_dog", [(32, 32)] * 2)
    settings = {"format": "kohya", "prior__path": str(tmp_path / "reg"), "prior__weight": 0.5, "prior__balance": "none"}
    fed = feed(tmp_path / "own", **settings, batch_size=4)
    seen = Counter(
        (key, one, weight)
        for b in fed.batches()
        for key, one, weight in zip(b.keys, of_class(b), b.weight.tolist(), strict=True)
    )
    assert seen == {
        ("0/4_sks dog/000.png", False, 1.0): 4, ("1/2_dog/000.png", True, 0.5): 2, ("1/2_dog/001.png", True, 0.5): 2,
    }  # fmt: skip


# breaks if one rule is used for another
@pytest.mark.effect("data.prior.balance")
def test_prior_balance_sets_frequency_of_class_images(feed: Make, noisy: Make, tmp_path: Path) -> None:
    own, other = noisy(tmp_path / "own", [(32, 32)] * 6), noisy(tmp_path / "class", [(32, 32)] * 3)

    def visits(balance: str) -> Counter[str]:
        fed = feed(own, prior__path=str(other), prior__balance=balance, prior__weight=0.5)
        return Counter(key for b in fed.batches() for key in b.keys)

    assert set(visits("visits").values()) == {1, 2}
    assert sum(n for key, n in visits("visits").items() if key.startswith("1/")) == 6
    assert set(visits("none").values()) == {1}
    pairs = feed(own, prior__path=str(other), prior__balance="pairs", prior__weight=0.5).batches()
    assert [of_class(b) for b in pairs] == [[False, False, True, True]] * 3
    assert all(b.weight.tolist() == [2.0, 2.0, 1.0, 1.0] for b in pairs)
    assert "write an even number" in contradiction("data.prior.path=x", "data.prior.balance=pairs", "data.batch_size=3")
    wide = noisy(tmp_path / "wide", [(64, 32)])
    with pytest.raises(DatasetError, match=r"there are 2 sizes") as caught:
        feed(own, prior__path=str(wide), prior__balance="pairs")
    assert caught.value.code == "E1454"


# breaks if the mean of a half is that of both, or the reported loss includes the weight
def test_pair_loss_adds_instance_and_weighted_class_means(prepare: Make, noisy: Make, tmp_path: Path) -> None:
    own, other = noisy(tmp_path / "own", [(48, 48)] * 3), noisy(tmp_path / "class", [(48, 48)] * 5)
    run = prepare(
        data__path=own, data__prior__path=other, data__prior__balance="pairs", data__prior__weight=0.3,
        data__crop="center", data__buckets__shape="square", optim__accumulation=2, data__batch_size=4,
        data__remainder="drop",
    )  # fmt: skip
    step = run.step()
    squared = []
    for batch in step.batches.batches:
        squared.append(torch.tensor(step.report.losses[4 * len(squared) : 4 * len(squared) + 4]))
        assert of_class(batch) == [False, False, True, True]
        assert len(batch_latents(run.family, batch, torch.device("cpu"))) == 4
    errors = torch.stack(squared)
    mine, theirs = errors[:, :2].mean(), errors[:, 2:].mean()
    assert step.report.loss == pytest.approx(float(mine + 0.3 * theirs), rel=1e-5)
    assert step.report.group_losses == pytest.approx({"instance": float(mine), "class": float(theirs)}, rel=1e-5)


# breaks if captions next to class images are always used, or their absence stops the run
@pytest.mark.effect("data.prior.class_prompt")
def test_class_prompt_captions_every_class_image(feed: Make, noisy: Make, tmp_path: Path) -> None:
    own, other = noisy(tmp_path / "own", [(32, 32)] * 2), noisy(tmp_path / "class", [(32, 32)] * 2)
    (other / "001.txt").unlink()
    with pytest.raises(DatasetError, match="no caption"):
        feed(own, prior__path=str(other))
    batches = feed(own, prior__path=str(other), prior__class_prompt="a picture").batches()
    pairs = {(one, caption) for b in batches for one, caption in zip(of_class(b), b.captions, strict=True)}
    assert pairs == {(True, "a picture"), (False, "image 0"), (False, "image 1")}


# breaks if the number is not how many are generated (generation: tests/tasks/cache/test_class_images.py)
@pytest.mark.effect("data.prior.num_class_images")
def test_num_class_images_is_the_number_generated(feed: Make, noisy: Make, tmp_path: Path) -> None:
    own, other = noisy(tmp_path / "own", [(32, 32)] * 2), noisy(tmp_path / "class", [(32, 32)] * 3)
    said = {"prior__path": str(other), "prior__class_prompt": "a picture"}
    for number, numbers in ((0, []), (3, []), (5, [0, 1])):
        recipe = feed(own, **said, prior__num_class_images=number).recipe
        assert class_images.list_missing(recipe) == numbers
    assert "needs the name of the class" in contradiction("data.prior.path=x", "data.prior.num_class_images=5")
    assert "image-folder" in contradiction(
        "data.prior.path=x", "data.prior.class_prompt=y", "data.prior.num_class_images=5", "data.format=kohya"
    )


def captions_in(fed: Any) -> set[str]:
    return {caption for b in fed.batches() for caption in b.captions}


# breaks if a folder gets the word of another folder, or class images get one
@pytest.mark.effect("data.captions.trigger")
def test_trigger_is_the_word_of_all_sets_or_of_one(feed: Make, noisy: Make, tmp_path: Path) -> None:
    one, two, other = (noisy(tmp_path / name, [(32, 32)]) for name in ("one", "two", "class"))
    words = [{"path": folder, "captions": {"trigger": word}} for folder, word in ((one, "sks dog"), (two, "zwx cat"))]
    assert captions_in(feed(*words)) == {
        "sks dog image 0", "zwx cat image 0",
    }  # fmt: skip
    assert captions_in(feed(one, two, captions__trigger="sks", prior__path=str(other))) == {
        "sks image 0", "image 0",
    }  # fmt: skip
    assert captions_in(feed(one, words[1])) == {"image 0", "zwx cat image 0"}
    assert "takes one value" in contradiction("data.captions.trigger=[x,y]")


# breaks if placeholders are not replaced, or images without a caption are refused although the template needs none
@pytest.mark.effect("data.captions.template")
def test_template_builds_captions_from_the_trigger(feed: Make, noisy: Make, tmp_path: Path) -> None:
    one, two = (noisy(tmp_path / name, [(32, 32)] * 2) for name in ("one", "two"))
    (one / "000.txt").write_text("on {trigger} grass")
    (one / "001.txt").write_text("")
    (two / "001.txt").unlink()
    word = {"captions__trigger": "sks dog"}
    assert captions_in(feed(one, **word, captions__template="a photo of {trigger}, {caption}")) == {
        "a photo of sks dog, on {trigger} grass", "a photo of sks dog",
    }  # fmt: skip
    assert captions_in(feed(two, **word, captions__template="a photo of {trigger}")) == {"a photo of sks dog"}
    with pytest.raises(DatasetError, match="no caption"):
        feed(two, **word, captions__template="{caption} of {trigger}")
    of_two = {"path": two, "captions": {"template": "a {trigger}"}}
    both = feed(one, of_two, **word, captions__template="{caption} of {trigger}")
    assert captions_in(both) == {"on {trigger} grass of sks dog", "of sks dog", "a sks dog"}
    noisy(tmp_path / "kohya" / "3_zwx cat", [(32, 32)] * 2)
    (tmp_path / "kohya" / "3_zwx cat" / "001.txt").unlink()
    named = feed(tmp_path / "kohya", format="kohya", captions__template="{trigger}, {caption}")
    assert captions_in(named) == {"zwx cat, image 0", "zwx cat"}


# breaks if a template without the trigger word is accepted
def test_template_without_a_placeholder_is_refused() -> None:
    assert "'a photo' does not contain {trigger}; write it" in contradiction(
        "data.captions.trigger=sks", "data.captions.template=a photo"
    )
    assert "data.captions.trigger is empty; set it" in contradiction("data.captions.template=a {trigger}")
