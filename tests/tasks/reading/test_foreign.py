"""A foreign line in the place of a recipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.translation import Launched
from mezzotint.tasks.reading import arguments, foreign
from mezzotint.tasks.reading.foreign import their_flags

LINE = ("--pretrained_model_name_or_path=sd15", "--train_data_dir=photos")


def test_other_verbs_take_a_foreign_line_with_their_own_switches_and_settings(tmp_path: Path) -> None:
    words = ["--as", "diffusers-sd", "optim.lr=1e-6", "--processes=2", "--", *LINE, f"--output_dir={tmp_path}"]
    reading, switches = arguments.parse_with(words, "check")
    assert switches.get("--processes") == "2"
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


def test_a_tools_line_is_answered_with_its_own_flags_for_files_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the name stands behind our verb without a switch, as the model does that is drawn from."""
    monkeypatch.chdir(tmp_path)
    drawing = ["python", "demo/sampling_without_streamlit.py", "--weight", "nope.ckpt", "--prompt", "fox"]
    assert main(["sample", "--as", "mindone-sdxl", "model.config=tiny-sdxl", "--", *drawing]) == 2
    said = capsys.readouterr().err
    assert "error[E1074]: nope.ckpt is neither a model" in said
    assert "of this line: nope.ckpt is --weight" in said


def test_a_merge_that_is_given_twice_names_the_flag_of_its_file_and_where_replace_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("base.ckpt", "unet_1.ckpt", "merged_weight.ckpt"):
        (tmp_path / name).touch()
    merging = ["python", "tools/weight_merge/merge_weight.py", "--base_weight", "base.ckpt",
               "--additional_weights", "unet_1.ckpt"]  # fmt: skip
    for more in ((), ("--save_path", "./merged_weight.ckpt")):
        assert main(["merge", "--as", "mindone-sdxl", "--", *merging, *more]) == 2
        said = capsys.readouterr().err
        assert "error[E1410]: merged_weight.ckpt: is already there" in said
        assert "merged_weight.ckpt is --save_path; write --replace before the lone `--`" in said


def test_settings_that_a_message_asks_for_stand_before_the_foreign_line() -> None:
    for message, words in (
        ("error[E1221]: m: set model.flux.distilled=true and model.flux.guidance=null", "model.flux.distilled=true "
         "model.flux.guidance=null"),
        ("error[E1219]: write sample.solver=euler, or leave it out", "sample.solver=euler"),
        ("error[E1410]: out is there; add --replace", "--replace"),
        ("error[E1220]: got sample.guidance=3.5", ""),
    ):  # fmt: skip
        assert their_flags(message, {}) == (f"write {words} before the lone `--`" if words else "")


def test_flags_are_named_where_a_sentence_means_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"model": "--weight", "./a/b.ckpt": "--over", "data.path": "--data", "--out": "--save"}
    for sentence, flags in (
        ("error[E1406]: model: is a folder without model_index.json", "model is --weight"),
        ("error[E1406]: this is no model, and no model: was one", ""),
        ("error[E1406]: a/b.ckpt: is no model", "./a/b.ckpt is --over"),
        (f"error[E1406]: {tmp_path}/a/b.ckpt: is no model", "./a/b.ckpt is --over"),
        ("error[E1406]: /elsewhere/a/b.ckpt: is no model", ""),
        ("error[E1406]: a/b.ckpt.old: is no model", ""),
        ("a/b.ckpt has 2 problems\n  given  data.path  E1007", "data.path is --data"),
        ("give --out, or data.path", "--out is --save, data.path is --data"),
    ):
        assert their_flags(sentence, names) == (f"of this line: {flags}" if flags else "")


@pytest.mark.parametrize("more", [(), ("--save_path", "mine")])
def test_the_folder_of_a_run_is_the_flag_that_names_it(more: tuple[str, ...]) -> None:
    """Not the one that leaves the time of the start out of it."""
    line = ("--config=sd_xl_base_finetune_910b.yaml", "--weight=x.ckpt", "--data_path=p", *more)
    stamped = foreign.translation("mindone-sdxl", [*line, "--save_path_with_time", "False"], Launched())
    assert stamped.origin["run.folder"].removeprefix("default of ") == "--save_path"
