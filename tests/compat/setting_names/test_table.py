"""Names of other trainers lead to ours: in recipes, in `explain`, in hints."""

from __future__ import annotations

import pytest

from mezzotint.cli import main
from mezzotint.compat.setting_names.table import EVERY, KOHYA, NAMES, ONE, SIMPLE
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.foreign_names import meaning_of, value_of
from mezzotint.settings.reading.nearest import advice, nearest
from mezzotint.settings.reading.paths import by_path, sections
from mezzotint.settings.reading.read import read_text


def test_each_name_leads_to_a_setting_or_a_remedy() -> None:
    for name, known in NAMES.items():
        assert known.path in by_path() or known.path in sections() or (known.path is None and known.note), name
        assert name == name.lower().replace("-", "_"), name
        assert not known.note.endswith("."), name
        assert len(known.note) < 120, name
    for trainer in (KOHYA, "diffusers", ONE, SIMPLE, EVERY):
        assert sum(trainer in known.origins for known in NAMES.values()) >= 15, trainer
    assert len(NAMES) >= 80


def test_no_name_is_one_of_our_settings_with_another_meaning() -> None:
    """A name that is a full path of ours is read as that path, never as the foreign one."""
    assert set(NAMES) & (set(by_path()) | set(sections())) == set()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("learning_rate", "optim.lr"),
        ("train_batch_size", "data.batch_size"),
        ("max_train_steps", "run.steps"),
        ("resolution", "data.resolution"),
        ("min_snr_gamma", "objective.min_snr_gamma"),
        ("mixed_precision", "run.precision"),
        ("gradient_checkpointing", "run.gradient_checkpointing.enabled"),
        ("optimizer_type", "optim.optimizer.kind"),
        ("max_grad_norm", "optim.clip.norm"),
        ("flip_aug", "data.flip"),
        ("cache_latents", "data.cache.latents"),
        ("clip_skip", "model.clip_skip"),
        ("keep_tokens", "data.captions.keep_tags"),
        ("shuffle_caption", "data.captions.shuffle_tags"),
        ("lr_scheduler", "optim.schedule.kind"),
        ("text_encoder_lr", "optim.part_lr"),
        ("train_text_encoder", "model.train"),
        ("save_precision", "run.export.dtype"),
        ("ip_noise_gamma", "objective.input_perturbation"),
        ("multires_noise_iterations", "objective.pyramid_discount"),
        ("v_parameterization", "model.prediction"),
        ("xformers", "model.attention"),
        ("sdpa", "model.attention"),
        ("network_module", "model.adapter.kind"),
        ("network_dim", "model.adapter.rank"),
        ("lora_rank", "model.adapter.rank"),
        ("network_alpha", "model.adapter.alpha"),
        ("lora_alpha", "model.adapter.alpha"),
        ("network_dropout", "model.adapter.dropout"),
        ("network_train_unet_only", "model.train"),
        ("network_weights", "model.adapter.path"),
        ("scale_weight_norms", "model.adapter.max_norm"),
    ],
)
def test_explain_shows_the_setting_and_the_origin_of_the_name(
    written: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", written]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{written} (")
    assert f"is {meant} here" in " ".join(output.split())
    assert f"\n\n{meant}\n  " in output
    assert max(map(len, output.splitlines())) <= 100
    assert nearest(written) == meant
    assert nearest(f"run.{written}") in (meant, f"run.{written}"), "or one of our sections has that name"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("optim.learning_rate", "optim.lr"), ("learningRate", "optim.lr"), ("learning_rat", "optim.lr")],
)
def test_misspelled_name_in_a_section_is_found(written: str, meant: str) -> None:
    assert nearest(written) == meant


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["train", "mini", "--mixed_precision", "no"], "write run.precision=fp32 (no is fp32)\n"),
        (["train", "mini", "--gradient_checkpointing"], "write run.gradient_checkpointing.enabled=true\n"),
        (["train", "--gradient_checkpointing", "mini"], "write run.gradient_checkpointing.enabled=true\n"),
        (["train", "mini", "--train_text_encoder"], "write model.train=[denoiser, text_encoder]"),
        (["bench", "mini", "--learning_rate", "2"], "mezzotint bench has no option --learning_rate; write optim.lr=2"),
        (["train", "--as", "sd-scripts", "--", "--x=1"], "commands of sd-scripts are read by --as kohya"),
        (["translate", "--as", "OneTrainer", "--", "--x=1"], "commands of OneTrainer are not supported yet"),
    ],
)
def test_habitual_option_is_answered_with_the_setting(
    line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""


@pytest.mark.parametrize("word", ["v_pred_like_loss", "--v-pred-like-loss"])
def test_name_without_counterpart_prints_a_remedy(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0
    assert "has no counterpart here: " in capsys.readouterr().out
    assert nearest(word) is None
    assert advice(word) == NAMES["v_pred_like_loss"].note


@pytest.mark.parametrize("spelled", ["--learning_rate", "learning-rate", "learningRate", "LEARNING_RATE"])
def test_name_is_found_in_any_spelling(spelled: str) -> None:
    known = meaning_of(spelled)
    assert known is not None
    assert known.path == "optim.lr"
    assert known.origin == "kohya, diffusers, OneTrainer and SimpleTuner"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("keep_tokens=3", "did you mean data.captions.keep_tags? (keep_tokens=N is keep_tags=N−1)"),
        ("learning_rate=1", "did you mean optim.lr?"),
        ("prior_loss_weight=1", "did you mean data.prior.weight?"),
        ("optim.optimizer.kind=AdamW8bit", "got 'AdamW8bit'; did you mean adamw-8bit?"),
        ("optim.optimizer.kind=adafactr", "did you mean adafactor?"),
        ("optim.schedule.kind=cosine_with_restarts", "did you mean restarts?"),
        ("run.precision=float16", "got 'float16'; did you mean fp16?"),
        ("run.precision=no", "got 'no'; did you mean fp32?"),
        ("run.export.dtype=float", "did you mean fp32?"),
        ("objective.loss=l2", "did you mean mse?"),
        ("model.prediction=v_prediction", "did you mean v?"),
        ("run.preview.every=10m", "got '10m'; did you mean '10 minutes'?"),
        ("run.save.every=2h", "did you mean '120 minutes'?"),
        ("run.save.every=3ep", "did you mean '3 epochs'?"),
    ],
)
def test_recipe_with_a_foreign_name_or_value_proposes_ours(written: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=[written])
    assert words in str(caught.value)


def test_value_is_only_proposed_where_it_is_a_choice() -> None:
    assert value_of("run.precision", "BFloat16") == "bf16"
    assert value_of("run.device", "no") is None
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=["run.weight_dtype=float16"])
    assert "fp16?" not in str(caught.value)
