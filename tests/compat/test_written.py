"""`mezzotint translate --to=NAME`: files and command lines of other trainers."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import strategies as st

from mezzotint.errors import RecipeError
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.translation import Launched
from mezzotint.tasks import translate
from mezzotint.tasks.reading import foreign

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)  # fmt: skip


def test_recipe_is_printed_for_another_trainer_with_notes_on_the_error_stream(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert translate.run(["mini", "data.path=photos", "data.flip=0.3", "--to=ai-toolkit"]) == 0
    printed = capsys.readouterr()
    comment, text = printed.out.split("\n", 1)
    assert comment == "# from mini, by mezzotint translate --to=ai-toolkit; start it with: python run.py FILE"
    assert yaml_rules.load(text, "job").tree["config"]["name"] == "mini"
    assert "note: data.flip=0.3 is lost: flip_x is on or off\n" in printed.err


def test_file_is_written_only_where_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["mini", "data.path=photos", "--to=ai-toolkit", f"--out={tmp_path / 'job.yaml'}"]
    assert translate.run(words) == 0
    assert capsys.readouterr().out == ""
    first = (tmp_path / "job.yaml").read_text("utf-8")
    with pytest.raises(RecipeError, match="already exists and was not changed"):
        translate.run(words)
    assert translate.run([*words, "run.seed=7", "--replace"]) == 0
    assert (tmp_path / "job.yaml").read_text("utf-8") == first.replace("training_seed: 0", "training_seed: 7")


def test_several_files_are_written_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "written"
    words = ["style", "data.path=photos", "--to=kohya", f"--out={out}"]
    assert translate.run(words) == 0
    printed = capsys.readouterr()
    comment, command = printed.out.splitlines()
    assert comment == "# from style, by mezzotint translate --to=kohya"
    names = {"config_file": "config.toml", "dataset_config": "dataset.toml", "sample_prompts": "prompts.txt"}
    start = "accelerate launch --num_processes=1 train_network.py "
    assert command.startswith(start)
    assert set(command.removeprefix(start).split()) == {f"--{flag}={out / name}" for flag, name in names.items()}
    assert "note: data.format='image-folder' is lost: the scripts read the images directly in a folder\n" in printed.err
    assert {path.name for path in out.iterdir()} == set(names.values())
    translated = foreign.translate("kohya", command.split(), Launched()).settings
    assert translated["data"]["path"] == "photos"
    with pytest.raises(RecipeError, match=r"config\.toml: already exists and was not changed"):
        translate.run(words)
    assert translate.run([*words, "run.seed=7", "--replace"]) == 0
    assert "seed = 7" in (out / "config.toml").read_text("utf-8")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(RecipeError, match="file: already exists and was not changed"):
        translate.run([*words[:-1], f"--out={tmp_path / 'file'}", "--replace"])


def test_several_files_are_printed_after_their_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert translate.run(["style", "data.path=photos", "--to=kohya"]) == 0
    parts = capsys.readouterr().out.split("\n\n# ")
    assert parts[0].splitlines()[1].startswith("accelerate launch --num_processes=1 train_network.py ")
    files = dict(part.split("\n", 1) for part in parts[1:])
    assert files.keys() == {"config.toml", "dataset.toml", "prompts.txt"}
    assert tomllib.loads(files["config.toml"])["network_module"] == "networks.lora"


def test_line_of_one_trainer_becomes_a_file_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--pretrained_model_name_or_path=sd15", "--train_data_dir=photos", "--learning_rate=3e-5"]
    assert translate.run(["--as=diffusers-sd", "--to=ai-toolkit", "data.flip=0.5", "--", *line]) == 0
    job = yaml_rules.load(capsys.readouterr().out, "job").tree["config"]["process"][0]
    assert (job["train"]["lr"], job["datasets"][0]["flip_x"]) == (3e-5, True)


def test_trainer_that_is_only_read_is_refused() -> None:
    with pytest.raises(RecipeError, match="it is only read"):
        translate.run(["mini", "--to=everydream2"])
