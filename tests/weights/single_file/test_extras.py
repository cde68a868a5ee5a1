"""Extra tensors and metadata of a single file are kept in a folder."""

from __future__ import annotations

from pathlib import Path

import torch

from mezzotint.weights.single_file.extras import FOLDER, Extras, drop_average, read_extras


def test_extras_round_trip_through_a_folder(tmp_path: Path) -> None:
    rest, averages = {"betas": torch.tensor([float("nan"), 1.0])}, {"model_ema.x": torch.ones(2)}
    words = {"modelspec.author": "someone", "format": "pt"}
    Extras(rest, averages, {"a.weight": ("b.weight", (2, 1))}, words, "sd").write(tmp_path)
    extras = read_extras(tmp_path)
    assert torch.equal(extras.rest["betas"].nan_to_num(2.0), rest["betas"].nan_to_num(2.0))
    assert torch.equal(extras.averages["model_ema.x"], averages["model_ema.x"])
    assert extras.spellings == {"a.weight": ("b.weight", (2, 1))}
    assert (extras.metadata, extras.layout) == ({"modelspec.author": "someone"}, "sd")
    drop_average(tmp_path)
    assert read_extras(tmp_path).averages == {}


def test_no_folder_is_written_without_extras(tmp_path: Path) -> None:
    Extras(metadata={"format": "pt"}).write(tmp_path)
    assert not (tmp_path / FOLDER).exists()
    assert read_extras(tmp_path) == Extras()
