"""A Python object as a data set: read once; cached and resumed if it has keys and hashes."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mezzotint as mz
from mezzotint.api import datasets
from mezzotint.api.datasets import KeyedImageDataset

WORDS = (
    "run.steps=1", "optim.accumulation=1", "run.export.every=null",
    "run.tensorboard=false", "run.preview.every=null", "data.resolution=32", "data.cache.path=cache",
    "data.batch_size=2", "data.workers=0",
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Plain:
    """Four grey images."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[np.ndarray, str]:
        self.reads.append(index)
        return np.full((32, 32, 3), 40 * index + 20, np.uint8), f"grey {index}"


class Keyed(Plain):
    """The same with keys, which need escaping, and content hashes."""

    def __init__(self, versions: tuple[int, ...] = (0, 0, 0, 0)) -> None:
        super().__init__()
        self.versions = versions

    def __getitem__(self, index: int) -> tuple[np.ndarray, str]:
        image, caption = super().__getitem__(index)
        return image + np.uint8(self.versions[index]), caption

    def key(self, index: int) -> str:
        return f"set/näme {index}"

    def content_hash(self, index: int) -> str:
        return str(self.versions[index])


def tiny(name: str, *words: str) -> mz.LoadedRecipe:
    return mz.recipe("tiny_cpu", *WORDS, f"run.name={name}", *words)


def test_dataset_object_is_trained() -> None:
    images = Path("images/set")
    images.mkdir(parents=True)
    keyed = Keyed()
    for index in range(4):
        image, caption = keyed[index]
        Image.fromarray(image).save(images / f"{index}.png")
        (images / f"{index}.txt").write_text(caption)
    run = mz.train(tiny("object"), dataset=keyed)
    assert run.is_finished
    log = (run.path / "run.log").read_text()
    assert "4 images" in log
    report = (run.path / "data_report.jsonl").read_text()
    assert "set%2Fn%C3%A4me" in report or "skipped" not in report


def test_unchanged_samples_of_another_version_come_from_the_cache() -> None:
    words = ("data.cache.latents=true", "data.flip=0")
    first, again, changed = Keyed(), Keyed(), Keyed((0, 0, 7, 0))
    mz.train(tiny("a", *words), dataset=first)
    assert sorted(first.reads) == [0, 1, 2, 3]
    mz.train(tiny("b", *words), dataset=again)
    assert again.reads == []
    mz.train(tiny("c", *words), dataset=changed)
    assert changed.reads == [2]


def test_another_class_with_the_same_keys_is_another_data_set() -> None:
    class Brighter(Keyed):
        pass

    mz.train(tiny("a"), dataset=Keyed())
    brighter = Brighter()
    mz.train(tiny("b"), dataset=brighter)
    assert sorted(brighter.reads) == [0, 1, 2, 3]


def test_run_with_keys_resumes_and_a_changed_data_set_is_refused() -> None:
    constant = "optim.schedule.kind=constant"
    run = mz.train(tiny("a", constant), dataset=Keyed())
    longer = mz.train(tiny("a", constant, "run.steps=2"), dataset=Keyed())
    assert (run.path, longer.step) == (longer.path, 2)
    with pytest.raises(mz.RecipeError, match="E1513"):
        mz.train(tiny("a", constant, "run.steps=4"), dataset=Keyed((1, 0, 0, 0)))


def test_caching_and_resuming_without_keys_are_refused() -> None:
    assert not isinstance(Plain(), KeyedImageDataset)
    for word in ("data.cache.latents=true", "data.cache.text=true", "run.resume=latest"):
        with pytest.raises(mz.RecipeError, match=r"the data set Plain does not name its samples; .*key\(index\)"):
            mz.train(tiny("a", word), dataset=Plain())
    run = mz.train(tiny("a"), dataset=Plain())
    assert run.is_finished
    assert list(Path("cache/objects").iterdir()) == []
    with pytest.raises(mz.MezzotintError, match=r"run.resume is never"):
        mz.train(tiny("a", "run.steps=4"), dataset=Plain())


class Broken(Plain):
    def __init__(self, sample: object) -> None:
        super().__init__()
        self.sample = sample

    def __getitem__(self, index: int) -> tuple[np.ndarray, str]:
        return self.sample  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("sample", "what"),
    [
        (np.zeros((8, 8, 3), np.uint8), r"sample 0 .* is ndarray, not \(image, caption\)"),
        ((np.zeros((8, 8), np.uint8), "a"), r"array of uint8 \(8, 8\)"),
        ((np.zeros((8, 8, 3), np.float32), "a"), "array of float32"),
        ((3, "a"), "an image of type int"),
    ],
)
def test_sample_of_a_wrong_type_is_named(sample: object, what: str) -> None:
    with pytest.raises(mz.RecipeError, match=what):
        mz.train(tiny("a"), dataset=Broken(sample))


def test_duplicate_keys_are_refused() -> None:
    class Same(Keyed):
        def key(self, index: int) -> str:
            return "same"

    with pytest.raises(mz.RecipeError, match="3 repeated keys"):
        mz.train(tiny("a"), dataset=Same())


def test_paths_and_pil_images_are_accepted_as_images() -> None:
    Image.new("RGB", (32, 32), "red").save("red.jpg")

    class Mixed(Keyed):
        def __getitem__(self, index: int) -> tuple[object, str]:  # type: ignore[override]
            return ("red.jpg" if index else Image.new("RGB", (32, 32))), "an image"

    run = mz.train(tiny("a"), dataset=Mixed())  # type: ignore[arg-type]
    folder = run.recipe.data.path
    assert sorted(path.suffix for path in folder.iterdir()) == [".jpg"] * 3 + [".jsonl", ".png"]
    assert (folder / "set%2Fn%C3%A4me 1.jpg").read_bytes() == Path("red.jpg").read_bytes()
    assert Path("red.jpg").stat().st_nlink == 1, "it is copied and not linked"


def test_second_reader_waits_for_the_first() -> None:
    place, keyed = Path("objects"), Keyed()
    place.mkdir()
    with (place / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reader = threading.Thread(target=datasets._read_keyed, args=(keyed, place))
        reader.start()
        reader.join(1)
        assert reader.is_alive()
        assert keyed.reads == []
    reader.join(30)
    assert sorted(keyed.reads) == [0, 1, 2, 3]
