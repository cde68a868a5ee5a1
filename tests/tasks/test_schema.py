"""`mezzotint schema` prints the schema of recipes."""

from __future__ import annotations

import json

import pytest

from mezzotint.cli import main


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert {"model", "data", "optim", "run"} <= json.loads(capsys.readouterr().out)["properties"].keys()
    assert main(["schema", "--yaml"]) == 2
