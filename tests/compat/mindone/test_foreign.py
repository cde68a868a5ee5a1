"""A command of MindONE in place of a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.settings.reading.translation import Launched
from mezzotint.tasks.reading import foreign


def test_tool_command_errors_name_its_own_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the name follows our command without an option, as the model of `sample` does."""
    monkeypatch.chdir(tmp_path)
    drawing = ["python", "demo/sampling_without_streamlit.py", "--weight", "nope.ckpt", "--prompt", "fox"]
    assert main(["sample", "--as", "mindone-sdxl", "model.config=tiny-sdxl", "--", *drawing]) == 2
    output = capsys.readouterr().err
    assert "error[E1074]: nope.ckpt is neither a model" in output
    assert "in this command line: nope.ckpt is --weight" in output


def test_repeated_merge_names_the_flag_and_replace_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("base.ckpt", "unet_1.ckpt", "merged_weight.ckpt"):
        (tmp_path / name).touch()
    merging = ["python", "tools/weight_merge/merge_weight.py", "--base_weight", "base.ckpt",
               "--additional_weights", "unet_1.ckpt"]  # fmt: skip
    for more in ((), ("--save_path", "./merged_weight.ckpt")):
        assert main(["merge", "--as", "mindone-sdxl", "--", *merging, *more]) == 2
        output = capsys.readouterr().err
        assert "error[E1410]: merged_weight.ckpt: already exists" in output
        assert "merged_weight.ckpt is --save_path; write --replace before the `--`" in output


@pytest.mark.parametrize("more", [(), ("--save_path", "mine")])
def test_run_folder_errors_name_the_flag(more: tuple[str, ...]) -> None:
    """Not the one that leaves the time of the start out of it."""
    line = ("--config=sd_xl_base_finetune_910b.yaml", "--weight=x.ckpt", "--data_path=p", *more)
    stamped = foreign.translate("mindone-sdxl", [*line, "--save_path_with_time", "False"], Launched())
    assert stamped.origin["run.folder"].removeprefix("default of ") == "--save_path"
