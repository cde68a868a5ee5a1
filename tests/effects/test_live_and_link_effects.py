"""Rows of the link to exports, of settings read at each epoch, and of name templates."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from mezzotint import outside
from mezzotint.errors import RecipeError, Stopped
from mezzotint.settings.reading.read import read_text

COMMON = {"data__cache__latents": True, "run__steps": 2, "optim__ema__rule": "none"}


def events(folder: Path) -> list[dict[str, Any]]:
    return [e["values"] for e in outside.read_lines(folder / "history.jsonl") if e["event"] == "live settings"]


# breaks if no link is created, or it points to another folder
@pytest.mark.effect("run.export.link")
def test_export_link_points_to_exports(shared_world: Any, prepare: Any) -> None:
    assert (
        shared_world.train(
            "linked", run__export__link="ckpts", run__export__name="'{last}{name}-{micro_step}'", **COMMON
        )
        == 0
    )
    run = shared_world.root / "linked"
    assert (run / "ckpts").readlink() == Path("exports")
    [model] = (run / "ckpts").iterdir()
    assert model.name == "last-run-2"
    assert not (prepare(**COMMON).folder.path / "ckpts").exists()
    (shared_world.root / "kept" / "ckpts").mkdir(parents=True)
    prepare(run__folder=shared_world.root / "kept", run__export__link="ckpts", **COMMON)
    assert (shared_world.root / "kept" / "ckpts").is_dir()
    assert not (shared_world.root / "kept" / "ckpts").is_symlink(), "an existing folder stays"


# breaks if a signal always exports a model, or never, or under the usual name
@pytest.mark.effect("run.export.when_stopped", "run.export.name")
def test_when_stopped_exports_after_a_signal(prepare: Any, capsys: Any) -> None:
    for asks in (False, True):
        ready = prepare(
            run__export__when_stopped=asks, run__export__name="'{last}{name}-{step}{ema}'", run__steps=9,
            optim__ema__rule="constant",
        )  # fmt: skip
        ready.job.start.interrupts.stop_signal = signal.SIGINT
        with pytest.raises(Stopped):
            ready.job.train()
        result = sorted(path.name for path in ready.folder.exports.iterdir())
        assert result == (["interrupted-run-1", "interrupted-run-1_ema"] if asks else [])
        assert ("the model at this step: " in capsys.readouterr().out) is asks


def test_file_system_without_links_gives_a_warning(prepare: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Any, target_is_directory: bool = False) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    prepare(run__export__link="ckpts", **COMMON)
    assert "could not be linked to exports/" in capsys.readouterr().out


# breaks if the file changes a setting that cannot change during a run
@pytest.mark.effect("run.live.fixed", "run.live.path")
def test_fixed_settings_ignore_the_live_file(shared_world: Any, capsys: Any) -> None:
    path = shared_world.root / "live.yaml"
    path.write_text("objective: {noise_offset: 0.3, min_snr_gamma: 5}\noptim: {lr: 0.5}\n")
    words = {"run__live__path": str(path), "run__live__fixed": ["objective.noise_offset", "optim.lr"], **COMMON}
    assert shared_world.train("fixed", **words) == 0
    assert events(shared_world.root / "fixed") == [{"objective.min_snr_gamma": 5.0}]
    assert "cannot change during a run" not in capsys.readouterr().out


def test_export_name_with_unknown_field_lists_known_ones() -> None:
    with pytest.raises(
        RecipeError, match=r"accepts only \{name\}, \{what\}, \{epoch\}, \{step\}, \{micro_step\}, \{last\} and \{ema\}"
    ):
        read_text("schema: 1", overrides=["run.export.name='{gs}'"])
    assert read_text("schema: 1", overrides=["run.export.name='{last}{name}-{micro_step:05}'"]).recipe.run.export.name
    with pytest.raises(RecipeError, match=r"run\.export\.link"):
        read_text("schema: 1", overrides=["run.export.link='../x'"])


def test_sample_seed_minus_one_is_the_seed_of_the_run(prepare: Any) -> None:
    ready = prepare(run__seed=-1, sample__seed=-1, **COMMON)
    recipe = yaml.safe_load((ready.folder.path / "recipe.yaml").read_text())
    assert recipe["sample"]["seed"] == recipe["run"]["seed"] >= 0
