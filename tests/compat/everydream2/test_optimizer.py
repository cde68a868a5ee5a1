"""optimizer.json of `everydream2`: rates, optimizers, schedules, what stays as it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from everydream_files import optimized, problems, translate, written
from foreign_lines import ALONE, flat

from mezzotint.errors import RecipeError
from mezzotint.settings.sections.optim import ScheduleSettings
from mezzotint.tasks.reading import foreign
from mezzotint.training import lr

RECORD = json.loads(
    (Path(__file__).parents[2] / "parity" / "data" / "everydream2" / "optimizer_settings.json").read_text("utf-8")
)

SHIPPED: dict[str, Any] = {
    "doc": {"base": "remarks", "of": ["any", "kind"]},
    "base": {"optimizer": "adamw8bit", "lr": 1e-6, "lr_scheduler": "constant", "lr_decay_steps": None,
             "lr_warmup_steps": None, "betas": [0.9, 0.999], "epsilon": 1e-8, "weight_decay": 0.01},
    "text_encoder_overrides": {"optimizer": None, "lr": 5e-7, "lr_scheduler": "cosine", "lr_decay_steps": None,
                               "lr_warmup_steps": None, "betas": None, "epsilon": None, "weight_decay": None},
    "text_encoder_freezing": {"unfreeze_last_n_layers": None},
    "apply_grad_scaler_step_tweaks": True,
}  # fmt: skip


def test_without_a_file_the_shipped_one_applies() -> None:
    overrides = SHIPPED["text_encoder_overrides"] | {"lr_scheduler": None}
    assert flat(optimized(SHIPPED | {"text_encoder_overrides": overrides}).settings) == flat(translate().settings)
    assert optimized(SHIPPED).settings["optim"]["part_schedule"]["text_encoder"]["kind"] == "cosine", "the file's own"
    none = translate()
    assert not any("optimizer.json" in str(note) for note in none.notes), "of a file that is not there"
    assert none.origin["optim.lr"] == "default of --lr"
    assert none.origin["optim.optimizer.kind"] == "default of base.optimizer in the optimizer.json that ships"
    written("optimizer.json", SHIPPED | {"base": SHIPPED["base"] | {"optimizer": "adamw"}})
    assert flat(translate().settings)["optim.optimizer.kind"] == "adamw", "the default file is read in place"


def test_file_overrides_schedule_but_not_rate_of_the_command() -> None:
    translation = optimized(SHIPPED, "--lr=3e-6", "--lr_scheduler=linear")
    settings = flat(translation.settings)
    assert (settings["optim.lr"], settings["optim.schedule.kind"]) == (3e-6, "constant")
    assert "optim.part_lr.text_encoder" not in settings
    output = [str(note) for note in translation.notes]
    assert "--lr: counts before base.lr in opt.json and text_encoder_overrides.lr in opt.json" in output
    assert "--lr_scheduler: base.lr_scheduler in opt.json is constant and counts before it" in output
    free = optimized({"base": {"lr_scheduler": None}}, "--lr_scheduler=linear")
    assert flat(free.settings)["optim.schedule.kind"] == "linear"
    assert free.origin["optim.schedule.kind"] == "--lr_scheduler", "not the key that leaves it open"


@pytest.mark.parametrize("case", RECORD, ids=lambda case: str(case["args"] or case["base_in"]))
def test_learning_rates_and_schedules_match_everydream(case: dict[str, Any]) -> None:
    """Its merged settings, one batch per step; a learning rate in the command overrides both, as documented."""
    steps, line = case["epoch_len"] * case["max_epochs"], case["args"]
    content = {"base": SHIPPED["base"] | case["base_in"]}
    content["text_encoder_overrides"] = SHIPPED["text_encoder_overrides"] | case["te_in"]
    words = [f"--{key}={value}" for key, value in line.items()]
    reading = foreign.read_command_line(
        "everydream2", [f"--optimizer_config={written('opt.json', content)}", *words], (), ALONE
    )
    optim = reading.recipe.optim
    for part, expected in (("denoiser", case["base"]), ("text_encoder", case["text_encoder"])):
        schedule: ScheduleSettings = optim.part_schedule.get(part, optim.schedule)
        assert schedule.kind == expected["lr_scheduler"]
        assert optim.part_lr.get(part, optim.lr) == (line.get("lr") or expected["lr"])
        if schedule.kind != "constant":
            assert lr.resolve_span(schedule, steps) == (expected["lr_warmup_steps"], max(1, expected["lr_decay_steps"]))


OWN = {"d0": 1e-5, "growth_rate": 1.02, "decouple": True, "momentum": 0.8, "safeguard_warmup": False}

BETAS = [0.9, 0.999]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AdamW", {"kind": "adamw", "betas": BETAS, "eps": 1e-8, "weight_decay": 0.01}),
        ("adamw8bit", {"kind": "adamw-8bit-or-adamw", "betas": BETAS, "eps": 1e-8, "weight_decay": 0.01}),
        ("adacoor", {"kind": "adacoor", "eps": 1e-8}),
        ("lion", {"class_name": "pytorch_optimizer.Lion", "options": {"betas": BETAS}}),
        ("lion8bit", {"class_name": "bitsandbytes.optim.Lion8bit", "options": {"betas": BETAS}}),
        ("prodigy", {"class_name": "pytorch_optimizer.Prodigy", "options": {
            "betas": BETAS, "eps": 1e-8, "bias_correction": True, "safeguard_warmup": False, "d0": 1e-5,
            "growth_rate": 1.02, "weight_decouple": True}}),
        ("dadapt_adam", {"class_name": "pytorch_optimizer.DAdaptAdam", "options": {
            "betas": BETAS, "eps": 1e-8, "d0": 1e-5, "growth_rate": 1.02, "weight_decouple": True}}),
        ("dadapt_lion", {"class_name": "pytorch_optimizer.DAdaptLion", "options": {"betas": BETAS, "d0": 1e-5}}),
        ("dadapt_sgd", {"class_name": "pytorch_optimizer.DAdaptSGD", "options": {
            "d0": 1e-5, "growth_rate": 1.02, "momentum": 0.8}}),
    ],
)  # fmt: skip
def test_each_optimizer_is_built_as_in_everydream(name: str, expected: dict[str, Any]) -> None:
    whole = expected if "kind" in expected else {"kind": "library", **expected, "weight_decay": 0.01}
    translation = optimized({"base": {"optimizer": name, **OWN}})
    assert translation.settings["optim"]["optimizer"] == whole
    idle = {note.flag.rpartition(".")[2] for note in translation.notes if "has no such option" in note.text}
    taken = {"weight_decouple": "decouple"}
    assert idle == OWN.keys() - {taken.get(key, key) for key in whole.get("options", ())}


def test_each_optimizer_is_tested() -> None:
    shown = {mark.args[1][index][0].lower() for mark in test_each_optimizer_is_built_as_in_everydream.pytestmark  # type: ignore[attr-defined]
             if mark.name == "parametrize" for index in range(len(mark.args[1]))}  # fmt: skip
    [(*_, remedy)] = problems(f"--optimizer_config={written('opt.json', {'base': {'optimizer': 'scalar_dowg'}})}")
    assert shown == set(remedy.removeprefix("write one of ").split(", "))


def test_text_encoder_inherits_from_base_except_optimizer_numbers() -> None:
    base = {"optimizer": "prodigy", "lr": 1.0, "betas": [0.8, 0.9], "d0": 1e-4, "lr_scheduler": "cosine"}
    optim = optimized({"base": base, "text_encoder_overrides": {"lr": 0, "epsilon": 1e-7}}).settings["optim"]
    assert (optim["lr"], "part_lr" in optim, "part_schedule" in optim) == (1.0, False, False)
    own = optim["part_optimizer"]["text_encoder"]["options"]
    assert (own["betas"], own["eps"], "d0" in own) == ([0.8, 0.9], 1e-7, False)
    assert optim["optimizer"]["options"]["d0"] == 1e-4


def test_text_encoder_learning_rate_may_be_scaled() -> None:
    for level in ("base", "text_encoder_overrides"):
        translation = optimized({"base": {"lr": 2e-6}} | {level: {"lr": 2e-6, "text_encoder_lr_scale": 0.5}})
        assert flat(translation.settings)["optim.part_lr.text_encoder"] == 1e-6


def test_infinite_growth_is_the_default_of_the_library() -> None:
    translation = optimized('{"base": {"optimizer": "prodigy", "growth_rate": Infinity}}')
    assert "growth_rate" not in translation.settings["optim"]["optimizer"]["options"]


@pytest.mark.parametrize("name", ["coordinate_dowg", "scalar_dowg", "dadapt_adan", "adamcm", "adamwww"])
def test_unknown_optimizer_is_refused(name: str) -> None:
    [(where, code, what, remedy)] = problems(f"--optimizer_config={written('opt.json', {'base': {'optimizer': name}})}")
    assert (where, code) == ("base.optimizer in opt.json", "E1018")
    assert "adamw" in f"{what}; {remedy}"


@pytest.mark.parametrize(
    ("freezing", "expected"),
    [
        ({}, {}),
        ({"unfreeze_last_n_layers": 2}, {"last_layers": 2}),
        ({"unfreeze_final_n_layers": 2}, {"last_layers": 2}),
        ({"unfreeze_last_n_layers": 2, "freeze_embeddings": False},
         {"last_layers": 2, "freeze": ["!text_encoder/*embeddings*"]}),
        ({"freeze_embeddings": True}, {"freeze": ["text_encoder/*embeddings*"]}),
        ({"unfreeze_last_n_layers": 1, "freeze_final_layer_norm": True},
         {"last_layers": 1, "freeze": ["text_encoder/*final_layer_norm*"]}),
        ({"freeze_front_n_layers": 1}, {"freeze": ["~text_encoder/*layers.0.*", "text_encoder/*embeddings*"]}),
        ({"freeze_front_n_layers": -2}, {"last_layers": 2}),
    ],
)  # fmt: skip
def test_frozen_text_encoder_layers_are_named(freezing: dict[str, Any], expected: dict[str, Any]) -> None:
    model = optimized({"text_encoder_freezing": freezing}).settings["model"]
    assert {key: model[key] for key in ("last_layers", "freeze") if key in model} == expected


def test_freezing_all_layers_is_refused() -> None:
    name = written("opt.json", {"text_encoder_freezing": {"unfreeze_last_n_layers": 0}})
    [(where, _, what, _)] = problems(f"--optimizer_config={name}")
    assert where == "text_encoder_freezing.unfreeze_last_n_layers in opt.json"
    assert "must be 1 or more" in what


def test_all_problems_are_reported_together() -> None:
    written("opt.json", {"base": {"optimizer": "scalar_dowg"}, "text_encoder_overides": {}})
    refused = problems("--optimizer_config=opt.json", "--gpuid=1", "--clip_skip=5", "--lr_shceduler=cosine")
    remedies = {where: remedy for where, _, _, remedy in refused}
    assert remedies.keys() == {
        "--lr_shceduler", "text_encoder_overides in opt.json", "--gpuid", "--clip_skip", "base.optimizer in opt.json"
    }  # fmt: skip
    assert remedies["text_encoder_overides in opt.json"] == "did you mean text_encoder_overrides?"


def test_freezing_an_untrained_text_encoder_is_noted() -> None:
    translation = optimized({"text_encoder_freezing": {"unfreeze_last_n_layers": 2}}, "--disable_textenc_training")
    assert "last_layers" not in translation.settings["model"]
    assert any("options that freeze it have no effect" in str(note) for note in translation.notes)


def test_loss_scale_growth_settings_can_be_omitted() -> None:
    assert flat(optimized({"apply_grad_scaler_step_tweaks": False}).settings)["run.scaler.stages"] == []


@pytest.mark.parametrize(
    ("content", "where", "words"),
    [
        ({"base": {"learning_rate": 1}}, "base.learning_rate in opt.json", "; write base.lr"),
        ({"base": {"weight_decy": 1}}, "base.weight_decy in opt.json", "did you mean base.weight_decay?"),
        ({"bass": {"lr": 1}}, "bass in opt.json", "did you mean base?"),
        ({"base": 3}, "base in opt.json", 'write { "key": value }'),
        ({"base": {"betas": [0.9, "x"]}}, "base.betas in opt.json", "must be a number"),
    ],
)
def test_error_in_optimizer_json_names_key_and_file(content: Any, where: str, words: str) -> None:
    [(named, _, what, remedy)] = problems(f"--optimizer_config={written('opt.json', content)}")
    assert named == where
    assert words in f"{what}; {remedy}"


def test_recipe_errors_name_the_key_of_optimizer_json() -> None:
    written("opt.json", {"base": {"betas": [0.9, 1.5]}})
    with pytest.raises(RecipeError) as caught:
        foreign.read_command_line("everydream2", ["--optimizer_config=opt.json"], (), ALONE)
    assert {problem.where for problem in caught.value.problems} == {"base.betas in opt.json"}
