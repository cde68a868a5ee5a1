"""A foreign command with an access token."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.cli import main

# put together here, so that nobody takes it for a real one
HUB = "hf_" + "Abcd1234" * 4 + "Ef"


def test_access_token_in_a_command_is_never_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["--pretrained_model_name_or_path=m", f"--train_data_dir={tmp_path}", f"--hub_token={HUB}"]
    assert main(["translate", "--as", "diffusers-sd", "--", *line]) == 2
    output = capfd.readouterr()
    assert "hub_token" in output.err
    assert HUB not in output.out + output.err
