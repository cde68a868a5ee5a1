"""Recipes as options of another trainer: proposals of the rows and of the dialect, verified by translating back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mezzotint.compat.kit.dialect import Dialect, Draft, FileTable, mapped, row
from mezzotint.compat.kit.writing import Writing
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.reading.translation import Launched, WrittenRecipe
from mezzotint.settings.recipe import Recipe

ROWS = (
    mapped("seed", 1, "run.seed", "seed"),
    mapped("batch", 1, "data.batch_size", "of each process", unit="processes"),
    mapped("length", 100, "run.steps", "in micro-batches", unit="steps"),
    mapped("accumulation", 1, "optim.accumulation", "micro-batches"),
    mapped("loss", "mse", "objective.loss", "loss", choices=("mse", "mae"), values={"mse": "mse", "mae": "l1"}),
    mapped("rate", 1e-4, "optim.lr", "rate", most=1),
    mapped("fine", False, "run.precision", "numbers", on="fp32", off="bf16"),
    row("seeds", 1, "run.seed", "another name of seed"),
    mapped("prompts", list, "sample.prompts", "prompts", optional=True),
    row("mirror", False, "data.flip", "half of the images"),
)


def compute(draft: Draft) -> None:
    draft.set_all({"model.family": "sd", "run.folder": "runs/run", "run.name": "run", "data.path": "photos"})
    draft.set("data.flip", 0.5 if draft.values["mirror"] else 0.0, "mirror")


def propose(recipe: Recipe, launched: Launched) -> Mapping[str, Any]:
    return {"seeds": None, "mirror": recipe.data.flip > 0}


def dialect(config: str = "", **more: Any) -> Dialect:
    writing = Writing(propose=(propose,), **more)
    rows = (*ROWS, row(config, str, "run.name", "a file")) if config else ROWS
    return Dialect(name="other", about="an example", rows=rows, compute=compute, scripts=("train.py",), config=config,
                   accumulation="accumulation", write=writing)  # fmt: skip


BASE = (
    "schema: 1\nmodel: {family: sd}\ndata: {path: photos, decode: full}\n"
    "run: {seed: 1, steps: 100, precision: bf16, name: run, tf32: false}\noptim: {lr: 1e-4}\n"
)


def write(*changes: str, launched: Launched | None = None, **more: Any) -> WrittenRecipe:
    recipe = read_text(BASE, "a", ["data.batch_size=1", *changes]).recipe
    return dialect(**more).write_recipe(recipe, launched or Launched())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ((), ()),
        (("run.seed=7",), ("--seed=7",)),
        (("objective.loss=l1",), ("--loss=mae",)),
        (("run.precision=fp32",), ("--fine=True",)),
        (("optim.accumulation=4", "run.steps=30"), ("--length=120", "--accumulation=4")),
        (("data.flip=0.5",), ("--mirror=True",)),
        (("sample.prompts=[a fox, an owl]",), ("--prompts", "a fox", "an owl")),
    ],
)
def test_options_that_differ_from_their_defaults_are_written(changes: tuple[str, ...], words: tuple[str, ...]) -> None:
    written = write(*changes)
    assert sorted(written.line) == sorted(("train.py", *words))
    assert written.notes == ()


def test_batch_is_that_of_each_process() -> None:
    assert "--batch=4" in write("data.batch_size=8", launched=Launched(2)).line
    lost = write("data.batch_size=7", launched=Launched(2))
    assert not any(word.startswith("--batch") for word in lost.line)
    assert lost.notes == ("data.batch_size=7 is lost: other uses 2",)


def test_value_that_does_not_translate_back_is_a_note() -> None:
    assert write("data.flip=0.3").notes == ("data.flip=0.3 is lost: other uses 0.5",)
    assert write("data.flip=0.3", lost={"data.flip": "on or off"}).notes == ("data.flip=0.3 is lost: on or off",)
    refused = write("optim.lr=2")
    assert refused.line == ("train.py",)
    assert refused.notes == ("optim.lr=2 is lost: other uses 0.0001",)


def test_notes_follow_the_recipe_and_count_what_the_trainer_has_no_word_for() -> None:
    notes = write("sample.steps=3", "run.log_every=3", "objective.loss=huber", "data.crop=random").notes
    assert notes == (
        "data.crop='random' is lost: other uses 'center'",
        "objective.loss='huber' is lost: other uses 'mse'",
        "left out: 2 more settings of files, logs, previews and speed",
    )


def test_settings_may_be_only_counted_or_be_noted_by_others() -> None:
    notes = write("data.crop=random", "data.flip=0.3", quiet=frozenset(("data.crop",)), lost={"data.flip": ""}).notes
    assert notes == ("left out: 1 more setting of files, logs, previews and speed",)


def test_settings_that_only_the_lost_kind_has_need_no_note() -> None:
    notes = write("optim.optimizer.kind=adafactor", "optim.optimizer.beta2_decay=-0.5").notes
    paths = [note.partition("=")[0].removeprefix("optim.optimizer.") for note in notes]
    assert paths == ["kind", "eps", "weight_decay"]


def test_options_may_be_in_a_file_after_a_command_of_the_recipe() -> None:
    def write_files(values: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
        return {"settings": ("settings.json", json.dumps(values))}

    def start(recipe: Recipe, launched: Launched) -> list[str]:
        return ["torchrun", f"--nproc-per-node={launched.processes}", "train.py"]

    more = {"config": "settings", "files": write_files, "command": start}
    written = write("run.seed=7", "objective.loss=l1", "data.batch_size=8", launched=Launched(2), **more)
    assert written.line == ("torchrun", "--nproc-per-node=2", "train.py", "--settings=settings.json")
    assert json.loads(written.files["settings.json"]) == {"seed": 7, "loss": "mae", "batch": 4}
    assert written.notes == ()
    refused = write("optim.lr=2", **more)
    assert refused.files == {"settings.json": "{}"}
    assert refused.notes == ("optim.lr=2 is lost: other uses 0.0001",)


def test_kept_options_are_written_with_their_default_and_remarks_come_last() -> None:
    written = write("data.crop=random", keep=frozenset(("seed",)), remarks=lambda recipe: ("check it",))
    assert written.line == ("train.py", "--seed=1")
    assert written.notes[-1] == "check it"


def test_recipe_for_another_training_has_no_result() -> None:
    with pytest.raises(
        RecipeError, match=r"other cannot run a recipe with model\.train=\['denoiser', 'text_"
    ) as caught:
        write("model.train=[denoiser,text_encoder]")
    assert caught.value.code == "E1026"
    only_read = Dialect(name="other", about="an example", rows=ROWS, compute=compute)
    with pytest.raises(RecipeError, match="it is only read") as caught:
        only_read.write_recipe(read_text(BASE, "a").recipe, Launched())
    assert caught.value.code == "E1026"


def test_tables_are_a_file_in_the_order_of_their_rows() -> None:
    inner = (mapped("train.seed", 1, "run.seed", "seed"), row("sets", 0, "data.path", "sets", from_json=len),
             mapped("train.rate", 1e-4, "optim.lr", "rate"))  # fmt: skip
    sets = (row("path", str, "data.path", "a folder"),)

    def set_path(draft: Draft) -> None:
        draft.set_all({"model.family": "sd", "run.folder": "runs/run", "run.name": "run"})
        if "sets:sets.0.path" not in draft.values:
            draft.refuse("job:sets", "is empty")
            return
        draft.set("data.path", draft.values["sets:sets.0.path"], "job:sets")

    example = Dialect(
        name="other", about="an example", rows=(row("file", str, "run.name", "settings"),), compute=set_path,
        scripts=("train.py",),
        tables=(FileTable("file", "job:", inner, at=("jobs", 0)),
                FileTable("file", "sets:", sets, at=("jobs", 0, "sets"), each="sets")),
        write=Writing(propose=(lambda recipe, launched: {"sets:sets.0.path": str(recipe.data.path), "file": None},)),
    )  # fmt: skip
    written = example.write_recipe(read_text(BASE, "a", ["run.seed=3", "optim.lr=0.5"]).recipe, Launched())
    assert written.line == ("train.py", "--file=file.yaml")
    text = "jobs:\n- train:\n    seed: 3\n    rate: 0.5\n  sets:\n  - path: photos\n"
    assert written.files == {"file.yaml": text}
