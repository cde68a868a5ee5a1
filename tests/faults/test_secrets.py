"""Secrets in the environment, a recipe or a command line appear in no file, output or page (I6)."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import main
from support.board_runs import opened

# assembled here, so that scanners do not take them for real ones
HUB, WANDB, CLOUD, WORD = "hf_" + "Abcd1234" * 4 + "Ef", "0123456789" * 4, "AKIA" + "ABCDEFGH" * 2, "opensesame"
OF_THE_ENVIRONMENT = {
    "HF_TOKEN": HUB, "WANDB_API_KEY": WANDB, "AWS_SECRET_ACCESS_KEY": CLOUD,
    "https_proxy": f"http://user:{WORD}@127.0.0.1:9",
}  # fmt: skip


def holding(text: str) -> list[str]:
    return [secret for secret in (HUB, WANDB, CLOUD, WORD) if secret in text]


@pytest.mark.slow
def test_secrets_of_the_environment_appear_in_no_output(
    world: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in OF_THE_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert world.train("run", run__steps=1) == 0
    assert main(["check", *world.words("run")]) == 0
    main(["doctor", *world.words("run")])
    assert main(["verify", str(world.root / "run")]) == 0
    output = capfd.readouterr()
    assert holding(output.out + output.err) == []
    files = [path for path in world.root.rglob("*") if path.is_file()]
    assert len(files) > 40
    assert [path for path in files if holding(path.read_bytes().decode("latin-1"))] == []
    with opened(world.root) as board:
        for page in ("/", "/run?run=0/run", "/data?run=0/run", "/recipe?base=run:0/run", "/draw"):
            status, text, _ = board.ask(page)
            assert (status, holding(text)) == (200, []), page


@pytest.mark.parametrize(
    "word",
    [f"sample.negative_prompt={HUB}", f"model.path=https://user:{WORD}@example.com/model", f"run.name={WANDB}",
     f"data.path=s3://user:{WORD}@bucket/images", f"data.path=s3://bucket/images?X-Amz-Signature={WORD}",
     f"data.cache.path=s3://bucket/cache?token={WORD}", f"data.path=https://example.com/images?token={HUB}"],
)  # fmt: skip
def test_recipe_with_a_secret_is_refused_without_printing_it(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name, _, value = word.partition("=")
    section, _, key = name.partition(".")
    (tmp_path / "mine.yaml").write_text(f"schema: 1\n{section}:\n  {key}: {value}\n")
    with monkeypatch.context() as patch:
        patch.setattr(socket, "create_connection", None)  # no network
        for line in (["train", "tiny_cpu", word], ["check", "tiny_cpu", word], ["train", "mine.yaml"]):
            assert main(line) == 2, line
    output = capfd.readouterr()
    assert "E1009" in output.err
    assert holding(output.out + output.err) == []
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"], "no run was started"
    with opened(tmp_path) as board:
        _, answer = board.post("/api/recipe", {"base": "tiny_cpu", "changes": {name: value}})
        assert "E1009" in {one["code"] for one in answer["problems"]}
        assert holding(str(answer["problems"])) == []
