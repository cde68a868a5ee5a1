"""The verb `translate`, and `--as NAME -- …` of the other verbs: what is printed, what reads back, how words are
parted, and where a hub id is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.cli import main
from mezzotint.dialects.shared import writing
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.recipe.reading import yaml_rules
from mezzotint.recipe.reading.read import read, read_text
from mezzotint.tasks import translate
from mezzotint.tasks.reading import arguments, foreign
from mezzotint.tasks.reading import hub as _hub

LINE = ("--pretrained_model_name_or_path=sd15", "--train_data_dir=photos")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["translate", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--use_ema", "--seed=3", "--checkpoints_total_limit=2", "--lr_scheduler=polynomial"),
        ("--validation_prompts", "a cat: \"red\", 'blue' # no comment", "100", "", "null", "über\n two  lines", "- x"),
        ("--output_dir", "my folder/ÄÖ: #1", "--caption_column", "true", "--image_column", "1e5"),
        ("--train_data_dir", r"C:\pictures\new", "--cache_dir=~/hub"),
    ],
)
def test_what_is_printed_is_a_recipe_that_reads_to_the_same(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = printed(capsys, "--as", "diffusers-sd", "--", *LINE, *more)
    (tmp_path / "recipe.yaml").write_text(text, "utf-8")
    wanted = foreign.reading("diffusers-sd", [*LINE, *more], (), foreign.Launched())
    assert read(tmp_path / "recipe.yaml").recipe == wanted.recipe
    assert read(tmp_path / "recipe.yaml").digest == wanted.digest


def test_each_line_names_its_flag_and_the_notes_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--as=diffusers-sd", "--", "python", "train_text_to_image.py", *LINE, "--foreach_ema", "^")
    assert "  path: sd15  # --pretrained_model_name_or_path\n" in text
    assert "  lr: 0.0001  # default of --learning_rate\n" in text
    settings, _, notes = text.partition("# note")
    assert "--foreach_ema" not in settings
    for words in ("sign of continuation", "train_text_to_image.py` at the beginning", "--foreach_ema: the average"):
        assert words in notes.replace("\n#      ", "")
    assert all(line.startswith("#") for line in notes.splitlines()[1:])


def test_processes_are_looked_ahead_to(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--as", "diffusers-sd", "--processes=4", "--", *LINE)
    assert read_text(text).recipe.data.batch_size == 64


def test_a_refused_line_leaves_with_status_2_and_prints_no_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["translate", "--as", "diffusers-sd", "--", *LINE, "--bogus"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "given  --bogus  E1016 unknown flag" in err


@pytest.mark.parametrize(
    ("words", "code", "hint"),
    [
        ([], "E1012", "name the dialect"),
        (["recipe.yaml"], "E1012", "-- THE LINE AS IT IS; got 1 name"),
        (["--as", "diffusers-sd"], "E1012", "--as needs the foreign line after --"),
        (["--as", "--", "--a=1"], "E1012", "--as needs a value; write --as=NAME"),
        (["--", "--a=1"], "E1012", "-- needs --as NAME"),
        (["--as", "diffuser-sd", "--"], "E1015", "did you mean diffusers-sd?"),
        (["--as", "diffusers-sd", "--json", "--"], "E1012", "mezzotint translate has no switch --json"),
        (["--as", "diffusers-sd", "optim.lr=1", "--"], "E1012", "-- THE LINE AS IT IS; got 1 name"),
        (["--as", "diffusers-sd", "--processes=0", "--", *LINE], "E1012", "--processes is a whole number"),
    ],
)
def test_a_command_that_is_not_understood_is_answered_with_its_form(words: list[str], code: str, hint: str) -> None:
    with pytest.raises(RecipeError, match=r".") as caught:
        translate.run(words)
    assert caught.value.code == code
    assert hint in str(caught.value)


def test_other_verbs_take_a_foreign_line_with_their_own_switches_and_settings(tmp_path: Path) -> None:
    words = ["--as", "diffusers-sd", "optim.lr=1e-6", "--processes=2", "--", *LINE, f"--output_dir={tmp_path}"]
    reading, given = arguments.parse_with(words, "check")
    assert given.get("--processes") == "2"
    assert (reading.recipe.optim.lr, reading.recipe.data.batch_size, reading.recipe.run.folder) == (1e-6, 32, tmp_path)
    assert any(note.startswith("--seed: not given") for note in reading.notes)
    with pytest.raises(RecipeError, match="no switch --jsno"):
        arguments.parse_with(["--as", "diffusers-sd", "--jsno", "--", *LINE], "check")


def test_a_foreign_line_is_answered_without_torch() -> None:
    code = (
        "import sys\nfrom mezzotint.cli import main\n"
        f"assert main(['translate', '--as', 'diffusers-sd', '--', *{LINE!r}]) == 0\n"
        f"assert main(['train', '--as', 'diffusers-sd', '--', '--bogus', *{LINE!r}]) == 2\n"
        "assert not {'torch', 'diffusers', 'transformers', 'accelerate'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from("abcdef"), scalars | st.lists(scalars, max_size=4), max_size=5))
def test_every_value_is_written_so_that_our_own_rules_read_it_back(values: dict[str, object]) -> None:
    tree = {"model": {"deep": dict(values)}} if values else {"model": {}}
    text = writing.as_yaml(tree, {"model.deep.a": "--flag\nwith a break"})
    document = yaml_rules.load(text, "written")
    assert document.problems == ()
    assert document.tree == tree


# --- hub ids ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one model of two revisions, as the hub's programs lay it out."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "hub" / "models--some--model"
    for commit, name in (("c0ffee", "main"), ("beef", "fp16")):
        (root / "snapshots" / commit).mkdir(parents=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / name).write_text(commit)
    return root


def model_of(name: str, *more: str) -> Path:
    words = ["--as", "diffusers-sd", "--", f"--pretrained_model_name_or_path={name}", "--train_data_dir=x", *more]
    return arguments.parse(words, "train").recipe.model.path


def test_a_hub_id_is_found_in_the_local_cache_at_its_revision(hub: Path) -> None:
    assert model_of("some/model") == hub / "snapshots" / "c0ffee"
    assert model_of("some/model", "--revision=fp16") == hub / "snapshots" / "beef"
    assert model_of("some/model", "--revision=beef") == hub / "snapshots" / "beef"
    assert arguments.parse(["tiny_cpu", "model.path=some/model@fp16"], "train").recipe.model.path.name == "beef"


def test_a_hub_id_that_is_not_in_the_cache_says_how_to_fetch_it(hub: Path) -> None:
    with pytest.raises(WeightsError, match="`hf download some/other` puts it there") as caught:
        model_of("some/other")
    assert caught.value.code == "E1401"
    assert model_of("checkpoints/mine.ckpt") == Path("checkpoints/mine.ckpt"), "a file, and no id"
    with pytest.raises(WeightsError, match="at revision nosuch"):
        model_of("some/model", "--revision=nosuch")


def test_a_folder_counts_before_a_hub_id_and_has_no_revision(hub: Path, tmp_path: Path) -> None:
    (tmp_path / "some" / "model").mkdir(parents=True)
    assert model_of("some/model", "--revision=fp16") == tmp_path / "some" / "model"
    assert model_of("some/model") == Path("some/model")


def test_translate_looks_up_nothing(hub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--as", "diffusers-sd", "--", "--pretrained_model_name_or_path=not/there",
                   "--dataset_name=not/there")  # fmt: skip
    assert "path: not/there  # --pretrained_model_name_or_path" in text


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({}, str(Path.home() / ".cache" / "huggingface" / "hub")),
    ],
)
def test_the_cache_lies_where_the_hub_s_programs_put_it(environ: dict[str, str], expected: str) -> None:
    assert str(_hub.cache_root(environ)) == expected


def test_an_autoencoder_is_found_by_its_hub_id_too(hub: Path) -> None:
    words = ["tiny_cpu", "model.family=sdxl", "model.path=tiny-sdxl", "model.vae=some/model@fp16"]
    found = arguments.parse(words, "train")
    assert found.recipe.model.vae == hub / "snapshots" / "beef"
    assert str(found.recipe.model.path) == "tiny-sdxl"
    line = ["--pretrained_model_name_or_path=some/model", "--train_data_dir=x"]
    with pytest.raises(WeightsError, match="`hf download some/vae` puts it there"):
        arguments.parse(
            ["--as", "diffusers-sdxl", "--", *line, "--pretrained_vae_model_name_or_path=some/vae"], "train"
        )
