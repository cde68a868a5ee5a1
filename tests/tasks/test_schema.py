"""`mezzotint schema` prints the schema of recipes, or the page of all settings."""

from __future__ import annotations

import json

import pytest

from mezzotint.cli import main


def test_the_schema_is_json_and_the_page_is_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert {"model", "data", "optim", "run"} <= json.loads(capsys.readouterr().out)["properties"].keys()
    assert main(["schema", "--markdown"]) == 0
    assert "`optim.lr`" in capsys.readouterr().out
    assert main(["schema", "--yaml"]) == 2
