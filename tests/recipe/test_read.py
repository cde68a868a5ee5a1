"""From file and command line to a Recipe, or to everything that is wrong at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint import __version__
from mezzotint.errors import Problem, RecipeError
from mezzotint.recipe.base import Every, InputPath, Located
from mezzotint.recipe.reading.paths import Shape, settings, shape_of
from mezzotint.recipe.reading.read import (
    SCHEMA_COMMENT,
    Reading,
    digest_of,
    located,
    places,
    read,
    read_text,
    shipped_recipes,
)
from mezzotint.recipe.recipe import Recipe

LATER = f"the recipe is for a later Mezzotint than this one ({__version__}); update Mezzotint"


def problems_of(text: str, *overrides: str) -> list[Problem]:
    with pytest.raises(RecipeError) as caught:
        read_text(text, "sdxl.yaml", overrides)
    return list(caught.value.problems)


def only_problem(text: str, *overrides: str) -> Problem:
    (problem,) = problems_of(text, *overrides)
    return problem


def test_a_recipe_says_where_every_value_comes_from() -> None:
    reading = read_text("optim:\n  lr: 1e-6\nrun: {name: fox}\n", "r", ["data.batch_size=8", "run.name=hare"])
    assert reading.recipe.optim.lr == 1e-6
    assert reading.recipe.data.batch_size == 8
    assert reading.origin["optim.lr"] == "line 2"
    assert reading.origin["data.batch_size"] == "command line"
    assert reading.origin["run.name"] == "command line"
    assert "optim.accumulation" not in reading.origin


def test_the_report_has_the_documented_form() -> None:
    text = (
        "model:\n  family: sd\noptim:\n  accumulation: 2\n  learning_rate: 1\nrun:\n  name: x\ndata:\n  batch_size: 0\n"
    )
    with pytest.raises(RecipeError) as caught:
        read_text(text, "sdxl.yaml")
    assert str(caught.value) == (
        "sdxl.yaml has 2 problems\n"
        "  line 5  optim.learning_rate  E1001 unknown key; did you mean optim.lr?\n"
        "  line 9  data.batch_size      E1007 must be greater than 0, got 0"
    )


def test_problems_of_all_kinds_come_in_one_pass_in_the_order_of_the_file() -> None:
    text = (
        "model:\n"
        "  train: [denoiser, text_encoder]\n"
        "optim:\n"
        "  learning_rate: 1\n"
        "  clip: {scope: prat}\n"
        "data:\n"
        "  batch_size: many\n"
        "  batch_size: 4\n"
        "  cache: {text: true}\n"
        "epochs: 3\n"
    )
    found = [(p.line, p.where, p.code) for p in problems_of(text, "run.seed=-2", "run.sed=3", "steps")]
    assert found == [
        (4, "optim.learning_rate", "E1001"),
        (5, "optim.clip.scope", "E1007"),
        (7, "data.batch_size", "E1002"),
        (8, "data.batch_size", "E1005"),
        (9, "data.cache.text", "E1003"),
        (10, "epochs", "E1001"),
        (None, "run.sed", "E1001"),
        (None, "steps", "E1008"),
        (None, "run.seed", "E1007"),
    ]


def test_a_check_of_two_sections_speaks_up_beside_a_mistyped_key() -> None:
    found = problems_of("run: {steps: 10, epochs: 2}\noptim: {learning_rate: 1}\n")
    assert [p.code for p in found] == ["E1003", "E1001"]
    assert found[0].what == "run.steps and run.epochs are both set; give one of them"
    assert found[0].line == 1


def test_a_check_is_silent_about_values_that_could_not_be_read() -> None:
    # part_lr is right or wrong according to model.train, which is unreadable here
    assert only_problem("model: {train: 5}\noptim: {part_lr: {text_encoder: 1.0}}\n").where.startswith("model.train")
    found = problems_of("model: {trian: [text_encoder]}\noptim: {part_lr: {text_encoder: 1.0}}\n")
    assert [p.where for p in found] == ["model.trian"]


@pytest.mark.parametrize(
    ("text", "where", "code", "what", "remedy"),
    [
        ("run: {tensorboard: no}", "run.tensorboard", "E1002", "must be true or false, got 'no'", "write false"),
        ("run: {tensorboard: 1}", "run.tensorboard", "E1002", "must be true or false, got 1", "write true"),
        ("optim: {lr: '1e-6'}", "optim.lr", "E1002", "must be a number, got '1e-6'", "write it without quotes"),
        ("run: {steps: true}", "run.steps", "E1002", "must be a whole number, got true", ""),
        ("run: {steps: 2.5}", "run.steps", "E1002", "must be a whole number, got 2.5", ""),
        ("optim: {lr: .nan}", "optim.lr", "E1002", "must be a finite number, got nan", ""),
        ("optim: {lr: -1}", "optim.lr", "E1007", "must be at least 0, got -1", ""),
        ("data: {resolution: 516}", "data.resolution", "E1007", "must be a multiple of 8, got 516", ""),
        ("data: {flip: 1.5}", "data.flip", "E1007", "must be at most 1, got 1.5", ""),
        ("run: {seed: 9223372036854775808}", "run.seed", "E1007", "less than 9223372036854775808", ""),
        (
            "data: {crop: centre}",
            "data.crop",
            "E1007",
            "one of center, random, triangular, got 'centre'",
            "did you mean center?",
        ),
        ("schema: 2", "schema", "E1007", "must be 1, got 2", LATER),
        ("schema: 0", "schema", "E1007", "must be 1, got 0", "write `schema: 1`, or leave the line out"),
        ("data: {path: [5]}", "data.path.0", "E1002", "must be a path, got 5; put it in quotes", ""),
        ("run: {name: 7}", "run.name", "E1002", "must be a text, got 7; put it in quotes", ""),
        ("run: {name: ../x}", "run.name", "E1007", "letters, digits, dot, hyphen, underscore", ""),
        ("optim: {part_lr: {denoiser: -1}}", "optim.part_lr.denoiser", "E1007", "must be at least 0, got -1", ""),
        ("optim: {part_lr: 1}", "optim.part_lr", "E1002", "must be a mapping", ""),
        ("objective: 3", "objective", "E1002", "must be a group of settings, got 3", ""),
        ("objective:", "objective", "E1002", "nothing stands below this key", ""),
        ("sample: {size: [64]}", "sample.size", "E1002", "has too few entries, got 1", ""),
        ("sample: {size: [64, 64, 64]}", "sample.size", "E1002", "at most 2 entries, got 3", ""),
        ("sample: {size: [64, 65]}", "sample.size", "E1003", "multiples of 8, got 64 × 65", ""),
        ("run: {save: {every: 2 weeks}}", "run.save.every", "E1003", "got '2 weeks'", ""),
        ("data: {background: red}", "data.background", "E1003", "#rrggbb, got 'red'", ""),
        ("data: {resolution: 520}", "data.resolution", "E1003", "must be a multiple of data.buckets.step", ""),
        ("optim: {schedule: {points: [[1, 2], [3, -4]]}}", "optim.schedule.points.1.1", "E1007", "got -4", ""),
    ],
)
def test_every_kind_of_mistake_is_said_in_plain_words(text: str, where: str, code: str, what: str, remedy: str) -> None:
    problem = only_problem(text)
    assert (problem.where, problem.code, problem.line) == (where, code, 1)
    assert what in problem.what
    assert problem.remedy == remedy
    assert "Input should" not in problem.what


def test_several_mistakes_in_one_list_are_all_named() -> None:
    found = problems_of("sample:\n  prompts:\n    - 1\n    - fine\n    - 2\n")
    assert [(p.line, p.where, p.code) for p in found] == [
        (3, "sample.prompts.0", "E1002"),
        (5, "sample.prompts.2", "E1002"),
    ]


def test_a_file_that_is_no_recipe_is_not_told_line_by_line() -> None:
    start = time.process_time()
    found = problems_of("".join(f"key{i}: 1\n" for i in range(20_000)))
    assert time.process_time() - start < 10.0  # of this process alone, whatever else the machine does
    assert len(found) == 51
    assert "19950 more" in found[-1].what


def test_whole_floats_count_as_whole_numbers() -> None:
    assert read_text("run: {steps: 1e3}").recipe.run.steps == 1000


def test_keys_are_never_ignored_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mezzotint.recipe.reading._problems.advice", lambda path: ""
    )  # what is meant is looked for elsewhere
    for setting in settings():
        section, _, name = setting.path.rpartition(".")
        path = f"{section}.{name}_zz".lstrip(".")
        text = "{" + ": {".join(path.split(".")) + ": 1" + "}" * len(path.split("."))
        assert only_problem(text).code == "E1001", path


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("optim.lr=1e-6", "optim.lr", 1e-6),
        ("optim.lr=010", "optim.lr", 10.0),
        ("run.name=42", "run.name", "42"),
        ("run.name=true", "run.name", "true"),
        ("run.steps=null", "run.steps", None),
        ("run.folder=null", "run.folder", None),
        ("run.save.every=2 epochs", "run.save.every", (Every(2, "epochs"),)),
        ("sample.prompts=a fox: red, #1", "sample.prompts", ("a fox: red, #1",)),
        ("sample.prompts=[a, b]", "sample.prompts", ("a", "b")),
        ("sample.prompts+=1984", "sample.prompts", ("1984",)),
        ("sample.negative_prompt=", "sample.negative_prompt", ""),
        ("sample.negative_prompt='null'", "sample.negative_prompt", "null"),
        ("model.train+=text_encoder", "model.train", ("denoiser", "text_encoder")),
        ("objective.timesteps.0=100", "objective.timesteps", (100, 1000)),
        ("optim.part_lr.denoiser=1e-3", "optim.part_lr", {"denoiser": 1e-3}),
        ("optim.part_lr={denoiser: 1e-3}", "optim.part_lr", {"denoiser": 1e-3}),
        ("optim.optimizer.betas=[0.8, 0.9]", "optim.optimizer.betas", (0.8, 0.9)),
        ("optim.schedule.points+=[500, 0.1]", "optim.schedule.points", ((500, 0.1),)),
        ("optim.schedule.points+=[[5, 0.1], [6, 0]]", "optim.schedule.points", ((5, 0.1), (6, 0.0))),
        ("optim={lr: 1e-3, clip: {norm: null}}", "optim.clip.norm", None),
        ("data.path+=/a=b", "data.path", (Path("/a=b"),)),
        ("schema=1", "version", 1),
    ],
)
def test_every_path_is_an_option(override: str, path: str, value: object) -> None:
    found: object = read_text("run: {log_every: 3}", overrides=[override]).recipe
    for word in path.split("."):
        found = getattr(found, word)
    assert found == value


def test_later_options_win_and_a_group_keeps_what_it_does_not_name() -> None:
    text = "optim: {accumulation: 4, clip: {scope: part}}\nsample: {prompts: [a, b]}\n"
    recipe = read_text(
        text, overrides=["optim.lr=1", "optim={lr: 2, clip: {norm: 5}}", "sample.prompts.1=c", "sample.prompts+=[d]"]
    ).recipe
    assert (recipe.optim.lr, recipe.optim.accumulation) == (2, 4)
    assert (recipe.optim.clip.norm, recipe.optim.clip.scope) == (5, "part")
    assert recipe.sample.prompts == ("a", "c", "d")


@pytest.mark.parametrize(
    ("override", "where", "code", "words"),
    [
        ("optim.lr", "optim.lr", "E1008", "write it like optim.lr=VALUE"),
        ("--lr", "--lr", "E1008", "is not written key=value"),
        ("=5", "=5", "E1008", "is not written key=value"),
        ("opti.lr=1", "opti.lr", "E1001", "did you mean optim.lr?"),
        ("learning_rate=1", "learning_rate", "E1001", "did you mean optim.lr?"),
        ("optim.lr.x=1", "optim.lr.x", "E1001", "leads into a single value"),
        ("sample.prompts.7=x", "sample.prompts.7", "E1008", "to append, write sample.prompts+=VALUE"),
        ("sample.prompts.first=x", "sample.prompts.first", "E1008", "entries count from 0"),
        ("optim.lr+=1", "optim.lr", "E1008", "is not a list"),
        ("optim=5", "optim", "E1002", "is a group of settings"),
        ("sample.prompts=[a", "sample.prompts", "E1004", "not closed"),
        ("optim.lr=x", "optim.lr", "E1002", "must be a number, got 'x'"),
        ("data.path=", "data.path", "E1003", "is empty"),
        ("run.folder=", "run.folder", "E1003", "is empty"),
        ("data.cache.path=", "data.cache.path", "E1003", "is empty"),
        ("model.path=", "model.path", "E1003", "is empty"),
        ("sample.prompts=hf_" + "a" * 34, "sample.prompts", "E1009", "access token"),
    ],
)
def test_an_option_that_does_not_fit_is_given_back(override: str, where: str, code: str, words: str) -> None:
    problem = only_problem("run: {log_every: 3}", override)
    assert (problem.where, problem.code, problem.line) == (where, code, None)
    assert words in f"{problem.what}; {problem.remedy}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("run: {log_every: 3}\n# token hf_abcdefghijklmnopqrstuvwxyz0123\n", 2),
        ("run:\n  name: hf_abcdefghijklmnopqrstuvwxyz0123\n", 2),
        ("data: {path: 'https://me:secret@host/x'}\n", 1),
        ("sample:\n  prompts:\n    - 0123456789abcdef0123456789abcdef01234567\n", 3),
        ("wandb: {api_key: whatever}\n", 1),
    ],
)
def test_secrets_are_refused_with_their_line_and_not_repeated(text: str, line: int) -> None:
    with pytest.raises(RecipeError) as caught:
        read_text(text)
    assert ("E1009", line) in [(p.code, p.line) for p in caught.value.problems]
    for secret in ("hf_abc", "secret@", "0123456789abcdef", "whatever"):
        assert secret not in str(caught.value)


def test_a_snapshot_folder_is_no_secret() -> None:
    path = "models--x/snapshots/0123456789abcdef0123456789abcdef01234567"
    assert read_text(f"model: {{path: {path}}}").recipe.model.path == Path(path)


def test_the_digest_follows_meaning_not_spelling() -> None:
    one = read_text("optim: {lr: 1e-6}\nmodel: {train: denoiser}\n# words\n")
    two = read_text("model:\n  train: [denoiser]\n", overrides=["optim.lr=0.000001"])
    other = read_text("optim: {lr: 2e-6}")
    assert one.digest == two.digest == digest_of(one.recipe)
    assert other.digest != one.digest
    assert len(one.digest) == 64


def test_a_dumped_recipe_reads_back_equal() -> None:
    recipe = read_text("run: {save: {every: 2 epochs}}\nsample: {size: [64, 32]}\ndata: {path: [a, b]}").recipe
    assert Recipe.model_validate(recipe.model_dump(mode="json", by_alias=True)) == recipe


def test_paths_are_found_beside_the_recipe_then_here_then_among_what_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "recipes", tmp_path / "here"
    for folder in (beside / "photos", here / "photos", here / "only_here"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = beside / "r.yaml"
    file.write_text(
        "data: {path: [photos, only_here, nowhere, ~/here]}\n"
        "run: {folder: ~/out, resume: ~/old}\nmodel: {path: tiny-sd}\n"
    )
    reading = read(file)
    recipe = located(reading)
    assert recipe.data.path == (beside / "photos", here / "only_here", Path("nowhere"), here)
    assert (recipe.run.folder, recipe.run.resume) == (tmp_path / "out", str(tmp_path / "old"))
    assert recipe.data.cache.path == tmp_path / ".cache/mezzotint"
    assert recipe.model.path.is_absolute()
    assert recipe.model.path.parts[-3:] == ("assets", "models", "tiny-sd")
    assert reading.recipe.data.path[0] == Path("photos")
    assert places(Path("nowhere"), beside) == (beside / "nowhere", here / "nowhere")


def holds_an_unmarked_path(shape: Shape) -> bool:
    if shape.base is Path:
        return not any(isinstance(mark, Located) for mark in shape.marks)
    inner = get_args(shape.base) if shape.base is not Path else ()
    return any(holds_an_unmarked_path(shape_of(one)) for one in inner if one is not Ellipsis)


def test_every_path_of_a_recipe_says_how_it_is_found() -> None:
    assert [one.path for one in settings() if holds_an_unmarked_path(one.shape)] == []
    marked = {one.path for one in settings() if any(isinstance(mark, Located) for mark in one.shape.marks)}
    assert {"model.path", "model.vae", "data.cache.path", "optim.ema.start", "run.folder", "run.resume"} <= marked


@pytest.mark.parametrize("kind", [Path, Path | None, tuple[Path, ...], dict[str, Path], dict[str, tuple[Path, int]]])
def test_a_path_without_a_mark_would_be_found(kind: object) -> None:
    assert holds_an_unmarked_path(shape_of(kind))
    assert not holds_an_unmarked_path(shape_of(tuple[InputPath, ...] | None))


def test_paths_anywhere_in_a_recipe_are_located(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("held", "vae", "moments", "one", "refiner"):
        (tmp_path / name).mkdir()
    text = """
data: {holdout: {path: {val: held, other: nowhere}}}
model: {vae: vae, over: [one, two], family: sdxl}
sample: {image: one/a.png, refiner: {path: refiner}}
run: {export: {folder: out, single_file_folder: ~/x}, start: {step: 1, optimizer: moments}, profile: {folder: ~/logs}}
"""
    recipe = located(read_text(text))
    assert recipe.data.holdout.path == {"val": tmp_path / "held", "other": Path("nowhere")}
    assert (recipe.model.vae, recipe.model.over) == (tmp_path / "vae", (tmp_path / "one", Path("two")))
    assert (recipe.sample.image, recipe.sample.refiner.path) == (Path("one/a.png"), tmp_path / "refiner")
    assert (recipe.run.export.folder, recipe.run.start.optimizer) == (tmp_path / "out", tmp_path / "moments")
    assert recipe.run.export.single_file_folder == Path("~/x"), "opened where it is used"
    assert recipe.run.profile.folder == Path("~/logs")


def test_what_ships_goes_by_its_name_unless_something_of_that_name_lies_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ships" / "models" / "small").mkdir(parents=True)
    (tmp_path / "ships" / "data" / "foxes").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("mezzotint.recipe.reading.read.MODELS", tmp_path / "ships" / "models")
    monkeypatch.setattr("mezzotint.recipe.reading.read.DATA", tmp_path / "ships" / "data")
    reading = read_text("model: {path: small}\ndata: {path: foxes}\n")
    shipped = located(reading)
    assert shipped.model.path == tmp_path / "ships" / "models" / "small"
    assert shipped.data.path == (tmp_path / "ships" / "data" / "foxes",)
    (tmp_path / "here" / "foxes").mkdir()
    assert located(reading).data.path == (tmp_path / "here" / "foxes",)


def test_a_missing_recipe_names_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "portrait.yaml").write_text("run: {log_every: 1}")
    with pytest.raises(RecipeError, match=r"did you mean portrait\.yaml\?"):
        read("potrait.yaml")
    with pytest.raises(RecipeError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(RecipeError) as caught:
        read("zzzz")
    assert caught.value.code == "E1011"


def test_a_shipped_recipe_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tiny_cpu.yaml"
    file.write_text("run: {name: shipped}")
    monkeypatch.setattr("mezzotint.recipe.reading.read.shipped_recipes", lambda: {"tiny_cpu": file})
    for name in ("tiny_cpu", "tiny-cpu", "tiny_cpu.yaml"):
        assert read(name).recipe.run.name == "shipped"


def test_every_shipped_recipe_reads_and_carries_the_schema_line() -> None:
    shipped = shipped_recipes()
    assert shipped, "no recipe ships"
    for path in shipped.values():
        assert isinstance(read(path), Reading)
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith(SCHEMA_COMMENT)
        assert (path.parent / first.removeprefix(SCHEMA_COMMENT)).resolve().name == "recipe.schema.json"


def test_reading_imports_no_torch_and_answers_within_two_seconds(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("optim: {learning_rate: 1}\n")
    code = (
        "import sys\nfrom mezzotint.cli import main\nstatus = main(['train', 'bad.yaml'])\n"
        "heavy = {'torch', 'diffusers', 'transformers', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\nsys.exit(status)"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    after = os.times()
    # the child's own time: a machine that is busy with other things answers later, and computes no longer
    took = after.children_user + after.children_system - before.children_user - before.children_system
    assert took < 2.0
    assert done.returncode == 2, done.stderr
    assert "did you mean optim.lr?" in done.stderr


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from([setting.path for setting in settings()]),
)
def test_any_value_anywhere_is_taken_or_refused_in_words(value: object, path: str) -> None:
    from mezzotint.recipe.reading._problems import check

    tree: dict[str, object] = {}
    here = tree
    *above, last = path.split(".")
    for word in above:
        here = here.setdefault(word, {})  # type: ignore[assignment]
    here[last] = value
    recipe, issues = check(tree)
    assert (recipe is None) == bool(issues)
    assert not any("Input should" in issue.what or "pydantic" in issue.what for issue in issues)
