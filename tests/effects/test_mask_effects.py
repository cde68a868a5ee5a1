"""Rows of `data.mask`: which parts of images are trained."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.diffusion.masking import pool_mask
from mezzotint.errors import DatasetError
from mezzotint.training.callbacks.validation import Validation
from support.arrow_tables import IMAGE, images, png, write
from support.contradictions import contradiction
from support.mask_cases import red, red_of, require_clip_masks, require_masks
from support.run_folders import logged
from support.shards import shard
from support.tables import row, table

Make = Callable[..., Any]


def grey(path: Path, size: tuple[int, int], shade: int) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.new("L", size, shade).save(path)


def masks_of(images: Path, folder: Path, shade: int) -> Path:
    """A plain mask for each image, in a folder of their own."""
    for path in images.glob("*.png"):
        grey(folder / path.name, Image.open(path).size, shade)
    return folder


# breaks if a mask is not cropped and mirrored like its image, is trained as an image, or is not required
@pytest.mark.effect("data.mask.source")
def test_mask_files_are_cropped_and_flipped_with_images(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(40, 32), (32, 48), (32, 32)])
    for name in ("000", "001"):
        Image.open(folder / f"{name}.png").getchannel("R").save(folder / f"{name}-masklabel.png")
    fed = feed(folder, mask__source="files", crop="random", flip=0.5, buckets__shape="square", steps=6)
    masks = {}
    for batch in fed.batches():
        for key, mask, channel in zip(batch.keys, batch.mask, red(batch), strict=True):
            assert torch.equal(mask, channel if key != "002.png" else torch.full_like(mask, 255)), key
            masks.setdefault(key, set()).add(mask.numpy().tobytes())
    assert set(masks) == {"000.png", "001.png", "002.png"}
    assert len(masks["000.png"]) > 1 < len(masks["001.png"]), "another crop at each visit"
    without = feed(folder, captions__missing="empty")
    assert without.batches()[0].mask is None
    [(_, note)] = without.report.notes
    assert note.startswith("2 files called NAME-masklabel.png: trained as images")


# breaks if opacity is not rotated like the image, or opaque images count as masked
def test_mask_source_alpha_masks_transparent_pixels(feed: Make, tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.Philox(key=3))
    pixels = rng.integers(0, 200, (48, 32, 4), dtype=np.uint8)
    pixels[..., 3] = np.where(rng.random((48, 32)) < 0.5, 0, 255)
    exif = Image.Exif()
    exif[0x0112] = 6
    folder = tmp_path / "own"
    folder.mkdir()
    Image.fromarray(pixels, "RGBA").save(folder / "a.png", exif=exif)
    Image.fromarray(pixels[:32, :, :3]).save(folder / "b.png")
    [batch] = feed(folder, mask__source="alpha", captions__missing="empty", buckets__shape="square", flip=1.0).batches()
    of = dict(zip(batch.keys, zip(batch.mask, red(batch), strict=True), strict=True))
    assert torch.equal(of["a.png"][0] == 0, of["a.png"][1] == 255)
    assert (of["b.png"][0] == 255).all()


# breaks if masks of another folder are used, or a folder of masks inside the images' folder is trained
@pytest.mark.effect("data.mask.path")
def test_mask_path_is_one_folder_for_all_or_one_for_each_set(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folders = [noisy(tmp_path / name, [(32, 32)] * 2) for name in "ab"]
    masks = [masks_of(folder, folder / "masks", shade) for folder, shade in zip(folders, (10, 20), strict=True)]
    grey(masks[1] / "stranger.png", (8, 8), 0)
    sets = [{"path": folder, "mask": {"path": of}} for folder, of in zip(folders, masks, strict=True)]
    fed = feed(*sets, mask__source="files")
    shades = {key: int(mask.max()) for b in fed.batches() for key, mask in zip(b.keys, b.mask, strict=True)}
    assert shades == {"0/000.png": 10, "0/001.png": 10, "1/000.png": 20, "1/001.png": 20}
    assert [reason for path, reason in fed.report.notes if "stranger" in path] == ["a mask without an image"]
    shutil.rmtree(masks[1])
    both = feed(*folders, mask__source="files", mask__path=str(masks[0]))
    assert {int(mask.max()) for b in both.batches() for mask in b.mask} == {10}
    assert "write data.mask.source=files" in contradiction("data.mask.source=alpha", "data.mask.path=x")
    assert "takes one value" in contradiction("data.mask.source=files", "data.mask.path=[a, b]")


# breaks if the number does not reach the loss of training or of held-out images
@pytest.mark.effect("data.mask.background")
@pytest.mark.effect("data.mask.mean")
def test_mask_background_and_mean_weight_the_loss(shared_world: Any, prepare: Make) -> None:
    """With black masks only the background counts: a quarter of the loss, or, divided by the sum of weights, all of
    it."""
    world = shared_world
    black = masks_of(world.images, world.root / "black", 0)
    cached = {"data__holdout__fraction": 0.2, "run__validation__every": "1 epochs"}
    masked = cached | {"data__mask__source": "files", "data__mask__path": black}

    def losses(**settings: Any) -> list[float]:
        ready = prepare(**settings)
        [validation] = [callback for callback in ready.trainer.callbacks if isinstance(callback, Validation)]
        return [ready.step().report.loss, validation.measure()["val/loss"]]

    plain = losses(**cached)
    quarter = losses(**masked, data__mask__background=0.25, data__mask__mean="image")
    assert quarter == pytest.approx([number / 4 for number in plain], rel=1e-5)
    even = prepare(**masked, data__mask__background=0.25).step().report.loss
    assert even == pytest.approx(plain[0], rel=1e-5)
    assert "no effect without masks" in contradiction("data.mask.background=0.5")
    assert "no effect without masks" in contradiction("data.mask.mean=image")


# breaks if a cached mask belongs to another placement, image or mask, or is lost with its entry
def test_cached_masks_equal_uncached_masks(prepare: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(64, 56)] * 3)
    shutil.copy(folder / "001.png", folder / "002.png")  # equal images with different masks
    for number in range(3):
        Image.open(folder / "000.png").getchannel("RGB"[number]).save(folder / f"00{number}-masklabel.png")
    settings = {"data__path": folder, "data__mask__source": "files", "data__crop": "center", "data__flip": 1.0,
                "data__buckets__shape": "square", "data__cache__path": tmp_path / "cache"}  # fmt: skip

    def masks(**more: Any) -> dict[str, torch.Tensor]:
        [batch] = prepare(**settings | more).next_batches().batches
        return dict(zip(batch.keys, batch.mask, strict=True))

    read = masks(data__cache__latents=False)
    assert {mask.dtype for mask in read.values()} == {torch.uint8}
    side = next(iter(masks().values())).shape[-1]
    shutil.rmtree(next((tmp_path / "cache" / "latents").glob("*/masks")))
    for kept in (masks(), masks()):
        for key, mask in read.items():
            assert torch.equal(kept[key], pool_mask(mask[None], side, side)[0]), key
    assert not torch.equal(read["001.png"], read["002.png"])


def test_missing_or_misfitting_mask_is_refused(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(32, 32)] * 2)

    def refused(**settings: Any) -> tuple[str | None, str]:
        with pytest.raises(DatasetError) as caught:
            feed(folder, **settings)
        return caught.value.code, caught.value.message

    beside, named = {"mask__source": "files"}, {"mask__source": "files", "mask__path": str(tmp_path / "masks")}
    assert refused(mask__source="alpha")[0] == "E1475"
    assert "no image NAME has a mask (NAME-masklabel.png next to it)" in refused(**beside)[1]
    said = refused(**named)[1]
    assert said == f"data.mask.path: {tmp_path / 'masks'}: does not exist; set it to the folder of masks"
    grey(tmp_path / "masks" / "fox.png", (32, 32), 0)
    assert "no file in it has the name of an image" in refused(**named)[1]
    grey(folder / "000-masklabel.png", (32, 40), 0)
    code, message = refused(**beside)
    assert code == "E1476"
    assert "000-masklabel.png is 32×40, its image 32×32" in message
    (folder / "000-masklabel.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    assert refused(**beside)[0] == "E1477"
    grey(tmp_path / "masks" / "000.png", (32, 32), 0)
    grey(tmp_path / "masks" / "000-masklabel.png", (32, 32), 0)
    assert "are masks of one image" in refused(**named)[1]
    clips = "data.format=videofolder"
    assert "clips have no alpha channel" in contradiction("data.mask.source=alpha", clips)
    both = ("data.clips.images=2", "data.clips.images_from=clips")
    assert "trains both in one loss" in contradiction("data.mask.source=files", clips, *both)
    own = contradiction("data.mask.source=files", "data.mask.path=x", "data.format=webdataset")
    assert "defines where masks are (members KEY.mask.png of its shards); leave out data.mask.path" in own


# --- other formats than folders of images ---


def as_table(folder: Path) -> dict[str, Any]:
    """The mask is in a separate folder, named by the column `mask`; the second image has none."""
    (folder / "of").mkdir()
    (folder / "of" / "any name.png").write_bytes(red_of(folder / "000.png"))
    table(folder, row("000.png") | {"mask": "of/any name.png"}, row("001.png") | {"mask": None})
    return {"format": "metadata"}


def as_csv(folder: Path) -> dict[str, Any]:
    (folder / "m.png").write_bytes(red_of(folder / "000.png"))
    (folder / "metadata.csv").write_text("file_name,mask,text\n000.png,m.png,one\n001.png,,two\n")
    return {"format": "metadata"}


def as_table_beside(folder: Path) -> dict[str, Any]:
    (folder / "000-masklabel.png").write_bytes(red_of(folder / "000.png"))
    table(folder, row("000.png"), row("001.png"))
    return {"format": "metadata"}


def as_parquet(folder: Path) -> dict[str, Any]:
    images = [{"bytes": (folder / f"00{n}.png").read_bytes(), "path": None} for n in range(2)]
    masks = [{"bytes": red_of(folder / "000.png"), "path": None}, None]
    for path in folder.iterdir():
        path.unlink()
    write(folder / "train.parquet", {"image": images, "text": ["one", "two"], "mask": masks}, {"mask": IMAGE})
    return {"format": "metadata"}


def as_shard(folder: Path) -> dict[str, Any]:
    mask, images = red_of(folder / "000.png"), [(folder / f"00{n}.png").read_bytes() for n in range(2)]
    for path in folder.iterdir():
        path.unlink()
    shard(
        folder / "a.tar", ("000.png", images[0]), ("000.txt", "one"), ("000.mask.png", mask),
        ("001.png", images[1]), ("001.txt", "two"),
    )  # fmt: skip
    return {"format": "webdataset"}


# breaks if a format loses its masks, assigns them to another image, or trains them as images
@pytest.mark.effect("data.mask.source")
@pytest.mark.parametrize("kind", [as_table, as_csv, as_table_beside, as_parquet, as_shard])
def test_masks_are_read_from_every_image_format(kind: Any, feed: Make, noisy: Make, tmp_path: Path) -> None:
    require_masks(kind, feed, noisy, tmp_path)


def as_films(folder: Path, mask: bytes) -> dict[str, Any]:
    (folder / "a-masklabel.png").write_bytes(mask)
    for name in "ab":
        (folder / f"{name}.txt").write_text(name)
    return {"format": "videofolder"}


def as_film_table(folder: Path, mask: bytes) -> dict[str, Any]:
    (folder / "m.png").write_bytes(mask)
    table(folder, row("a.mp4") | {"mask": "m.png"}, row("b.mp4"))
    return {"format": "videofolder"}


# breaks if a clip's mask is not cropped or mirrored like its frames, or is assigned to another clip
@pytest.mark.effect("data.mask.source")
@pytest.mark.parametrize("kind", [as_films, as_film_table])
def test_clip_mask_applies_to_all_frames(kind: Any, feed: Make, write_clip: Make, tmp_path: Path) -> None:
    require_clip_masks(kind, feed, write_clip, tmp_path)


# breaks if masks of clips do not reach the loss of a video model, or are lost between cache and step
@pytest.mark.slow
@pytest.mark.effect("data.mask.source")
def test_clip_masks_weight_the_loss_cached_or_not(shared_world: Any, write_clip: Make, tmp_path: Path) -> None:
    films = tmp_path / "films"
    films.mkdir()
    for name in "ab":
        write_clip(films / f"{name}.mp4", 8, size=(48, 32))
        (films / f"{name}.txt").write_text(name)
    plain = {
        "model__family": "wan", "model__path": "tiny-wan", "data__format": "videofolder", "data__path": films,
        "data__resolution": 32, "data__buckets__step": 16, "data__buckets__shape": "square", "data__clips__frames": 5,
        "data__batch_size": 2, "run__steps": 2, "run__export__every": None, "data__captions__dropout": 0.0,
        "data__clips__start": "first", "data__crop": "center", "data__flip": 0,
        "data__cache__path": tmp_path / "cache",
    }  # fmt: skip
    masked = plain | {"data__mask__source": "files", "data__mask__background": 0.25, "data__mask__mean": "image"}

    def losses(name: str, **settings: Any) -> list[float]:
        assert shared_world.train(name, **settings) == 0
        return logged(shared_world.root / name, "loss")

    quarter = [number / 4 for number in losses("of-clips", **plain, data__cache__latents=True)[:1]]
    for name in "ab":
        grey(films / f"{name}-masklabel.png", (48, 32), 0)
    cached = losses("masked-clips", **masked, data__cache__latents=True)
    assert len(list((tmp_path / "cache" / "latents").glob("*/masks"))) == 1
    assert cached[:1] == pytest.approx(quarter, rel=1e-5)
    read = losses("masked-clips-read", **masked, data__cache__latents=False)
    assert read == pytest.approx(cached, rel=1e-4)


def test_invalid_masks_of_each_format_are_named(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "own", [(32, 32)] * 3)
    table(folder, row("000.png") | {"mask": "gone.png"}, row("001.png") | {"mask": 3}, row("002.png"))
    with pytest.raises(DatasetError) as caught:
        feed(folder, format="metadata", mask__source="files")
    assert caught.value.code == "E1475", caught.value
    assert "the column 'mask'" in caught.value.message
    (folder / "of.png").write_bytes(red_of(folder / "002.png"))
    table(
        folder, row("000.png") | {"mask": "gone.png"}, row("001.png") | {"mask": 3}, row("002.png") | {"mask": "of.png"}
    )
    report = feed(folder, format="metadata", mask__source="files").report
    assert sorted(reason for _, reason in report.skipped) == [
        "its mask 'gone.png': no such file below the folder of the table",
        "its mask is a number (3), not a file name",
    ]
    table(folder, row("000.png") | {"mask": "../000.png"})
    with pytest.raises(DatasetError, match="outside the folder of the table"):
        feed(folder, format="metadata", mask__source="files")
    write(tmp_path / "p" / "train.parquet", {"image": images(1), "text": ["one"], "mask": [3]})
    with pytest.raises(DatasetError, match="the column 'mask' contains int64"):
        feed(tmp_path / "p", format="metadata", mask__source="files")
    assert feed(tmp_path / "p", format="metadata").catalogue.overrides.mask_digest is None
    shard(tmp_path / "s" / "a.tar", ("a.png", png(1)), ("a.txt", "a"), ("a.mask.png", png(1)), ("a.mask.jpg", png(1)))
    with pytest.raises(DatasetError, match="are masks with the same key"):
        feed(tmp_path / "s", format="webdataset", mask__source="files")
