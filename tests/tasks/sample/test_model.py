"""What `sample` can use: runs, checkpoints, recipes and models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.errors import CheckpointError, RecipeError
from mezzotint.families.sd import Family
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import sample
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.tasks.sample import _model
from mezzotint.tasks.sample import sample as verb
from mezzotint.tasks.sample.plan import resolve_source
from support.sample_command import FOLDER, QUICK, draw, drawn


@pytest.fixture(scope="module")
def trained(shared_world: Any) -> Any:
    """A world with a run of six steps with EMA and two checkpoints."""
    settings = {"run__steps": 6, "optim__ema__rule": "constant", "optim__ema__decay": 0.5, "optim__lr": 0.01}
    assert shared_world.train("run", **settings, sample__prompts=["a red circle"], sample__seed=9) == 0
    return shared_world


def of_run(world: Any, out: Path, *words: str, place: str = "run") -> tuple[Any, dict[str, str]]:
    ((pixels, facts),) = draw(out, *words, place=world.root / place).values()
    return pixels, facts


@pytest.mark.slow
def test_newest_checkpoint_and_export_generate_the_same_images(trained: Any, tmp_path: Path) -> None:
    raw, facts = of_run(trained, tmp_path / "raw", "--weights=raw")
    average, said = of_run(trained, tmp_path / "shadow", "--weights=ema")
    assert (facts["weights"], facts["training_step"], facts["prompt"], facts["seed"]) == (
        "raw",
        "6",
        "a red circle",
        "9",
    )
    assert (said["weights"], said["training_step"]) == ("shadow", "6")
    assert not np.array_equal(raw, average)
    assert facts["model"] != said["model"]
    again, _ = of_run(trained, tmp_path / "default")
    assert np.array_equal(again, average), "EMA by default"
    for name, pixels in (("step-00000006", raw), ("step-00000006-ema", average)):
        export = trained.root / "run" / "exports" / name
        words = ("--prompt=a red circle", "--seed=9")
        ((exported, _),) = draw(tmp_path / name, *words, place=export).values()
        assert np.array_equal(exported, pixels), name


def test_a_checkpoint_of_a_run_can_be_sampled_by_path(trained: Any, tmp_path: Path) -> None:
    early, facts = of_run(trained, tmp_path / "3", "--weights=raw", place="run/checkpoints/step-00000003")
    late, _ = of_run(trained, tmp_path / "6", "--weights=raw")
    assert facts["training_step"] == "3"
    assert facts["model_name"] == "run-step-00000003"
    assert not np.array_equal(early, late)


def test_recipe_samples_its_run_or_its_base_model(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = trained.words("run", sample__prompts=["a red circle"], sample__seed=9)
    assert verb.run([*words, *QUICK, f"--out={tmp_path / 'a'}"]) == 0
    ((pixels, _),) = drawn(tmp_path / "a").values()
    assert np.array_equal(pixels, of_run(trained, tmp_path / "b")[0])
    assert "nothing is trained yet" not in capsys.readouterr().out
    words = trained.words("untrained", sample__prompts=["a red circle"], sample__seed=9)
    assert verb.run([*words, *QUICK, f"--out={tmp_path / 'c'}"]) == 0
    ((before, facts),) = drawn(tmp_path / "c").values()
    assert "nothing is trained yet" in capsys.readouterr().out
    assert "training_step" not in facts
    assert not np.array_equal(before, pixels)


def test_default_size_is_native_size_of_the_model(tmp_path: Path) -> None:
    assert verb.run([str(FOLDER), "--prompt=a", "--steps=1", f"--out={tmp_path / 'x'}"]) == 0
    ((pixels, _),) = drawn(tmp_path / "x").values()
    model = Family.of(ModelSettings(path=FOLDER))
    side = model.parts()["denoiser"].config.sample_size * model.grid.pixels  # type: ignore[union-attr]
    assert pixels.shape == (side, side, 3)


def test_zero_terminal_snr_of_recipe_is_used_for_sampling(trained: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    values = {
        "objective__zero_terminal_snr": True,
        "model__prediction": "v",
        "run__steps": 1,
        "optim__ema__rule": "none",
    }
    assert trained.train("zero", **values) == 0
    seen: list[float] = []
    opened = _model.open_model(_model.find_model_source(resolve_source(str(trained.root / "zero"), ())), None)
    opened.family.parts()["denoiser"].register_forward_pre_hook(lambda _, inputs: seen.append(float(inputs[1].max())))
    request = Request("a", Size(32, 32))
    assert opened.objective.schedule.zero_terminal
    settings = SampleSettings(steps=2, guidance=(1.0,), solver="ddim")
    list(
        sample(
            opened.family,
            [request],
            Sampling(opened.objective.schedule, opened.objective.parameterization, "cpu", settings),
        )
    )
    assert seen[0] == 999
    with pytest.raises(RecipeError) as caught:
        verb.run([str(trained.root / "zero"), "--prompt=a", "--solver=heun", *QUICK, f"--out={out}"])
    assert caught.value.code == "E1070"


def test_missing_ema_weights_are_named(trained: Any, tmp_path: Path) -> None:
    assert trained.train("plain", run__steps=1, optim__ema__rule="none") == 0
    with pytest.raises(CheckpointError, match=r"trained without optim\.ema") as caught:
        verb.run([str(trained.root / "plain"), "--prompt=a", "--weights=ema", f"--out={tmp_path / 'out'}"])
    assert caught.value.code == "E1075"


def test_checkpoint_of_another_model_is_not_sampled(trained: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="trained tensors are not the model's") as caught:
        verb.run([str(trained.root / "run"), "--prompt=a", f"model.path={FOLDER}", "model.weights=files"])
    assert caught.value.code == "E1502"


def test_image_metadata_names_sharded_checkpoint(tmp_path: Path) -> None:
    def digest(*names: str) -> str:
        files = {name: {"bytes": 1, "sha256": 64 * str(number)} for number, name in enumerate(names)}
        (tmp_path / "manifest.json").write_text(json.dumps({"files": files}), "ascii")
        return _model._digest(tmp_path, "weights")

    assert digest("weights.safetensors", "shadow.safetensors") == 64 * "0"
    two = digest("weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors")
    assert two == hashlib.sha256((64 * "0" + 64 * "1").encode()).hexdigest()
