"""The verb `train`: how a run ends, and what it may die of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from mezzotint.errors import OutOfMemory, PeerLost
from mezzotint.run_folder import RunFolder
from mezzotint.settings import advice
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks import assemble
from mezzotint.tasks.train import train
from mezzotint.tasks.train.train import translate_failures


@pytest.mark.usefixtures("curves")
def test_stopped_run_has_report_and_history_entry(
    world: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_FAULT", "step.begin@3:int")
    assert world.train("run", run__steps=8) == 130
    folder = RunFolder(world.root / "run")
    stopped = [event for event in folder.events() if event["event"] == "stopped"]
    assert [(event["step"], event["signal"]) for event in stopped] == [(3, 2)]
    with Image.open(folder.logs / "loss.png") as image:
        assert image.size == (1650, 1050)
    assert "steps         3, the last in epoch 1" in (folder.logs / "report.txt").read_text()
    assert str(folder.logs / "loss.png") in capsys.readouterr().out


def test_out_of_memory_advice_omits_settings_in_use(tmp_path: Path) -> None:
    recipe = read_text("run: {micro_batch: 1, gradient_checkpointing: {enabled: true}}").recipe
    device: Any = SimpleNamespace(device="cuda:0")
    of_any = assemble.translate_shortage("here", advice.suggest_less_memory(recipe))
    for shortage in (translate_failures(device, RunFolder(tmp_path), "", recipe), of_any):
        with pytest.raises(OutOfMemory) as caught, shortage:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        assert str(caught.value).endswith("Tried to allocate 2 GiB); set data.resolution below 512")
        assert caught.value.exit_status == 5


def test_peer_that_ends_before_the_folder_is_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a run first agree on its folder."""

    def lose(text: str) -> str:
        raise RuntimeError("Read error [127.0.0.1]:1: Connection reset by peer")

    runtime = SimpleNamespace(
        world_size=2, rank=1, share=lose, close=lambda: None, peer_phases=lambda: "",
        describe_lost_peer=lambda: "process 0, which has ended",
    )  # fmt: skip
    monkeypatch.setattr(train, "open_runtime", lambda *_: runtime)
    reading = read_text("data: {path: shapes}")
    lost = r"process 1 lost process 0, which has ended; .*; start the same command again"
    with pytest.raises(PeerLost, match=lost), train.start_run(reading):
        pass
    assert PeerLost.exit_status == 6
