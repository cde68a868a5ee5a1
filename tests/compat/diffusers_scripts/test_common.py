"""What the two scripts of diffusers have in common, at the example of `diffusers-sd`."""

from __future__ import annotations

import pytest
from dialect_cases.diffusers_sd import LINES
from foreign_lines import flat

from mezzotint.settings.reading.translation import Launched

EIGHT = Launched(8, "fp16", "accelerate")

translate, changed, notes, refusal = LINES.translate, LINES.changed, LINES.notes, LINES.refusal


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", ("constant", 0, 0.0)), ("constant_with_warmup", ("constant", 500, 0.0)),
        ("linear", ("linear", 500, 0.0)), ("cosine", ("cosine", 500, 0.0)),
        ("cosine_with_restarts", ("restarts", 500, 0.0)), ("polynomial", ("polynomial", 500, 1e-3)),
    ],
)  # fmt: skip
def test_learning_rate_schedules_match_the_library(kind: str, expected: tuple[str, int, float]) -> None:
    schedule = translate(f"--lr_scheduler={kind}").settings["optim"]["schedule"]
    assert (schedule["kind"], schedule["warmup_steps"], schedule["floor"]) == pytest.approx(expected)
    assert (schedule["cycles"], schedule["power"]) == (1, 1.0)


def test_constant_learning_rate_ignores_warmup_with_a_note() -> None:
    assert changed("--lr_warmup_steps=9") == {}
    assert any("constant_with_warmup" in note for note in notes("--lr_warmup_steps=9"))
    assert not any("warmup" in note for note in notes())


def test_batch_size_counts_all_processes() -> None:
    words = ("--train_batch_size=8", "--gradient_accumulation_steps=4", "--scale_lr")
    settings = flat(translate(*words, launched=EIGHT).settings)
    assert (settings["data.batch_size"], settings["optim.accumulation"]) == (64, 4)
    assert settings["optim.lr"] == pytest.approx(1e-4 * 256)
    assert settings["data.remainder"] == "fill"
    assert any("a batch of 64" in note for note in notes(*words, launched=EIGHT))


@pytest.mark.parametrize(
    ("words", "launched", "precision", "frozen", "note"),
    [
        ((), Launched(), "fp32", "fp32", None),
        ((), Launched(1, "fp16", "accelerate"), "fp16", "same", "as the launcher sets"),
        ((), Launched(1, "no", "accelerate"), "fp32", "fp32", "as the launcher sets"),
        (("--mixed_precision=bf16",), Launched(1, "fp16", "accelerate"), "bf16", "same", "the flag overrides"),
        (("--mixed_precision=no",), Launched(1, "fp16", "accelerate"), "fp32", "fp32", "the flag overrides"),
        (("--mixed_precision=fp16",), Launched(), "fp16", "same", None),
    ],
)
def test_own_precision_overrides_that_of_the_launcher(
    words: tuple[str, ...], launched: Launched, precision: str, frozen: str, note: str | None
) -> None:
    translation = translate(*words, launched=launched)
    run = translation.settings["run"]
    assert (run["precision"], run["frozen_dtype"], run["weight_dtype"]) == (precision, frozen, "fp32")
    output = [str(n) for n in translation.notes if n.flag == "mixed_precision" and "float32" not in n.text]
    assert len(output) == (note is not None)
    assert note is None or note in output[0]
    if words:
        assert translation.origin["run.precision"] == "--mixed_precision"
    elif launched.mixed_precision:
        assert translation.origin["run.precision"] == "the launcher (accelerate)"


def test_unsupported_launcher_precision_is_refused() -> None:
    assert refusal(launched=Launched(1, "fp8", "accelerate")) == [("--mixed_precision", "E1018")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latest", "auto"),
        ("checkpoint-500", "step-00000500"),
        ("/elsewhere/checkpoint-12/", "step-00000012"),
        ("runs/other", "runs/other"),
    ],
)
def test_resume_option_names_our_checkpoints(name: str, expected: str) -> None:
    assert changed(f"--resume_from_checkpoint={name}") == {"run.resume": expected}
    assert any("resumes exactly" in note for note in notes(f"--resume_from_checkpoint={name}"))


def test_steps_override_epochs_and_dataset_name_overrides_folder() -> None:
    assert "epochs" not in translate("--max_train_steps=5", "--num_train_epochs=2").settings["run"]
    assert any("--max_train_steps is used" in n for n in notes("--max_train_steps=5", "--num_train_epochs=2"))
    assert any("--dataset_name is used" in n for n in notes("--dataset_name=a/b"))
