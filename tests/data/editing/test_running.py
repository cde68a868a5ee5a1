"""A run that is training while its data are edited keeps the data that it started with; the next run has the edits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import mezzotint as mz
from mezzotint.assets import DATA
from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.editing import operations
from mezzotint.data.editing.editor import DataEditor
from mezzotint.data.files.regions import Region
from mezzotint.settings.sections.data import DataSettings

WORDS = (
    "run.steps=8", "run.tensorboard=false", "run.preview.every=null", "run.export.every=null", "optim.accumulation=1",
    "data.resolution=32", "data.buckets.step=8", "data.batch_size=2", "data.workers=1",
)  # fmt: skip


class Editor(mz.Callback):
    """Edits the data after the second step, in more ways than indexes are kept, and records losses."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.losses: list[float] = []
        self._root, self._cache = root, cache

    def on_step(self, report: mz.StepReport | None, progress: mz.Progress) -> mz.Action:
        assert report is not None
        self.losses.append(report.loss)
        if progress.step == 2:
            settings = DataSettings(path=self._root)
            editor = DataEditor(self._root, settings)
            keys = list(build(settings, self._cache).keys())
            editor.exclude(keys[:2])
            half = Region((0, 0, 0.5, 0.5), 90)
            editor.change_settings(keys[2:], lambda one: replace(one, region=half), label="crop")
            for number in range(6):
                editor.apply(keys, operations.set_caption(f"edit {number}"))
                build(settings, self._cache)
        return mz.Action.NOTHING


@pytest.mark.slow
def test_running_run_keeps_the_data_it_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(DATA / "shapes", tmp_path / "photos")
    cache = tmp_path / "cache" / "catalogues"

    def losses(name: str, root: Path) -> list[float]:
        callback = Editor(root, cache)
        words = (f"run.name={name}", "data.path=photos", f"data.cache.path={tmp_path / 'cache'}")
        mz.train(mz.recipe("tiny_cpu", *WORDS, *words), callbacks=[callback])
        return callback.losses

    shutil.copytree(tmp_path / "photos", tmp_path / "other")
    undisturbed = losses("one", tmp_path / "other")
    assert losses("two", tmp_path / "photos") == undisturbed
    assert losses("three", tmp_path / "photos") != undisturbed
