"""Where the verbs of model files write: never over what is not theirs, and never a pickle."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.tasks.weights import args


def test_existing_output_is_named_and_replaced_only_on_request(tmp_path: Path) -> None:
    args.require_free(tmp_path / "new.safetensors", "merge")
    (tmp_path / "old.safetensors").write_bytes(b"x")
    with pytest.raises(WeightsError, match="merge does not overwrite it; give another name, or add --replace"):
        args.require_free(tmp_path / "old.safetensors", "merge")
    args.require_free(tmp_path / "old.safetensors", "merge", replaces=True)
    (tmp_path / "photos").mkdir()
    with pytest.raises(WeightsError, match="is a folder that is not a model; --replace does not remove it"):
        args.require_free(tmp_path / "photos", "merge", replaces=True)
    with pytest.raises(RecipeError, match="is not a folder; create it first"):
        args.require_free(tmp_path / "gone" / "new.safetensors", "merge")


def test_replaced_output_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    place = tmp_path / "model.safetensors"
    place.write_bytes(b"old")
    with args.store_beside(place) as store:
        writing = args.open_target(place, store)
        writing.__enter__().write_bytes(b"half")
        error = ValueError("cut off")
        assert not writing.__exit__(ValueError, error, None), "it goes on to the caller"
    assert place.read_bytes() == b"old"
    with args.store_beside(place) as store, args.open_target(place, store) as aside:
        aside.write_bytes(b"new")
    assert place.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_pickles_are_never_written() -> None:
    with pytest.raises(RecipeError, match=r"would be a pickle, which is never written; use b\.safetensors") as caught:
        args.parse(["a.safetensors", "b.pt"])
    assert caught.value.code == "E1012"
    assert args.parse(["a.safetensors", "b.safetensors", "--dtype=fp16", "--replace"]).replaces
