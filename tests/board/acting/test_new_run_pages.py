"""The page New run: what it lists, proposes and answers, also for hostile folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from mezzotint.assets import MODELS
from mezzotint.board.acting import new_run_pages
from mezzotint.board.acting.new_run_pages import BackgroundCommand, BackgroundCommands
from mezzotint.board.reading import candidates
from mezzotint.board.reading.root_folders import RootFolders
from mezzotint.settings.reading.read import read
from support.board_runs import SCRIPT, Board, opened, write_run

HOSTILE = "<img src=x onerror=window.hit=1>"
SHAPES, MINI = "shipped:shapes", "shipped:mezzotint-mini"


def write_photos(folder: Path, count: int, captions: int = 0) -> Path:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (8, 8), (number, 9, 9)).save(folder / f"{number}.png")
    for number in range(captions):
        (folder / f"{number}.txt").write_text(f"a red sks dog, {SCRIPT}")
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outside = write_photos(tmp_path_factory.mktemp("outside") / "secret", 2)
    root = tmp_path_factory.mktemp("page")
    write_photos(root / "rex", 3, captions=2)
    write_photos(root / "many" / "a", 1)
    write_photos(root / "many" / "b" / "c", 2)
    write_photos(root / HOSTILE, 1)
    write_run(root / "runs" / "first")
    (root / "rex" / "stolen.png").symlink_to(outside / "0.png")
    (root / "linked").symlink_to(outside)
    (root / ".hidden").mkdir()
    Image.new("RGB", (8, 8)).save(root / ".hidden" / "0.png")
    return root


@pytest.fixture(scope="module")
def board(root: Path) -> Iterator[Board]:
    with opened(root) as board:
        yield board


def propose(board: Board, **choices: Any) -> dict[str, Any]:
    status, answer = board.post("/api/new", {"goal": "subject", "model": MINI, "memory": "0"} | choices)
    assert status == 200, answer
    return dict(answer)


def messages(answer: dict[str, Any]) -> dict[str, str]:
    return {one["field"]: one["text"] for one in answer["messages"]}


# --- lists ---


def test_folders_of_images_are_listed_with_counts(board: Board) -> None:
    status, text, _ = board.ask("/api/new/data")
    assert status == 200
    listed = {row["name"]: (row["images"], row["captions"]) for row in json.loads(text)["rows"]}
    assert listed == {
        SHAPES: (12, 12),
        f"0/{HOSTILE}": (1, 0),
        "0/many": (3, 0),
        "0/many/a": (1, 0),
        "0/many/b/c": (2, 0),
        "0/rex": (3, 2),
    }, "neither runs, links that lead out nor hidden folders"


def test_list_of_ten_thousand_images_takes_less_than_a_second(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    for number in range(10_000):
        (tmp_path / "all" / f"{number:05d}.png").touch()
    roots = RootFolders.of([tmp_path])
    began = time.monotonic()
    rows, is_cut = candidates.find_data(roots)
    facts, folder = candidates.read_data(roots, "0/all", "sks")
    assert time.monotonic() - began < 1.0
    assert [one.images for name, _, one in rows if name == "0/all"] == [facts.images] == [10_000]
    assert folder.files == [f"{number:05d}.png" for number in range(candidates.SHOWN_IMAGES)]
    assert not is_cut


def test_search_ends_at_its_limits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "_SECONDS", -1.0)
    for rows, is_cut in (candidates.find_data(RootFolders.of([root])), candidates.find_models(RootFolders.of([root]))):
        assert is_cut
        assert len(rows) == 1, "what ships"


def test_models_are_listed_with_what_they_are(tmp_path: Path) -> None:
    for name in ("tiny-sdxl", "tiny-flux"):
        shutil.copytree(MODELS / name, tmp_path / name)
    config = tmp_path / "tiny-flux" / "transformer" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"guidance_embeds": False}))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model_index.json").write_text(json.dumps({"_class_name": SCRIPT}))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "model_index.json").write_text("[" * 100_000)
    (tmp_path / "junk.safetensors").write_bytes(b"no header")
    (tmp_path / "lora.safetensors").write_bytes(_safetensors("lora_unet_a.lora_up.weight"))
    (tmp_path / "old.ckpt").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    (tmp_path / "stolen").mkdir()
    (tmp_path / "stolen" / "model_index.json").symlink_to(MODELS / "tiny-sd" / "model_index.json")
    (tmp_path / "linked").symlink_to(MODELS / "tiny-sd")
    rows, is_cut = candidates.find_models(RootFolders.of([tmp_path]))
    about = {row.name: row.about for row in rows}
    usable = {row.name: row.facts for row in rows if row.facts is not None}
    assert usable.keys() == {MINI, "0/tiny-sdxl", "0/tiny-flux"}
    assert usable["0/tiny-sdxl"].family == "sdxl"
    assert usable["0/tiny-flux"].is_distilled
    assert about["0/tiny-flux"].startswith("FLUX.1, distilled, a folder of ")
    assert about["0/other"].startswith("not recognised: a folder of <script>")
    assert "not recognised" in about["0/deep"]
    assert about["0/junk.safetensors"].startswith("not recognised: cannot be read as weights")
    assert about["0/lora.safetensors"] == "not a model to train: a LoRA adapter"
    assert "a pickled file, which is not opened here" in about["0/old.ckpt"]
    assert "a link that leads out" in about["0/stolen"]
    assert "0/linked" not in about
    assert not is_cut
    assert not (tmp_path / "pwned").exists()


def _safetensors(name: str) -> bytes:
    header = json.dumps({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


def test_file_with_only_the_denoiser_gets_the_folder_of_its_family(tmp_path: Path) -> None:
    (tmp_path / "xs.safetensors").write_bytes(_safetensors("double_blocks.0.img_mod.lin.weight"))
    roots = RootFolders.of([tmp_path])
    facts = {row.name: row.facts for row in candidates.find_models(roots)[0]}["0/xs.safetensors"]
    assert facts is not None
    assert (facts.family, facts.is_file, facts.config) == ("flux", True, "")
    shutil.copytree(MODELS / "tiny-flux", tmp_path / "whole")
    facts = {row.name: row.facts for row in candidates.find_models(roots)[0]}["0/xs.safetensors"]
    assert facts is not None
    assert facts.config == str(tmp_path / "whole")


def test_cards_are_those_that_torch_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    card = SimpleNamespace(name="RTX\x1b[31m 4090", total_memory=25_386_352_640)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: card)
    assert candidates.find_cards() == [{"name": "RTX\\x1b[31m 4090", "gb": 25}] * 2


# --- proposals ---


def test_proposal_is_what_the_command_trains(board: Board, root: Path) -> None:
    answer = propose(board, data="0/rex", trigger="wug dog")
    assert answer["base"] == "mini-lora"
    assert answer["data"] | {"files": sorted(answer["data"]["files"])} == {
        "images": 3, "clips": 0, "captions": 2, "files": ["0.png", "1.png", "2.png"],
    }  # fmt: skip
    recipe = read("mini-lora", [f"{path}={text}" for path, text in answer["changes"].items()]).recipe
    assert recipe.data.paths == (root / "rex",)
    status, live = board.post("/api/recipe", {"base": answer["base"], "changes": answer["changes"]})
    assert status == 200
    assert live["problems"] == []
    assert live["command"].startswith("mezzotint train mini-lora ")
    assert board.ask(f"/recipe?{answer['query']}")[0] == 200, "All settings opens it"


def test_captions_that_name_the_trigger_are_noticed(board: Board) -> None:
    paths = {row["path"] for row in propose(board, data="0/rex", trigger="sks dog")["rows"]}
    assert "data.captions.trigger" not in paths
    assert "run.steps" in paths


def test_rows_changed_by_hand_are_kept_and_checked(board: Board) -> None:
    answer = propose(board, data="0/rex", trigger="wug dog", changed={"run.steps": "40", "optim.lr": "fast", "x": "y"})
    rows = {row["path"]: row for row in answer["rows"]}
    assert rows["run.steps"]["value"] == "40"
    assert rows["run.preview.every"]["value"] == "10 steps"
    assert rows["optim.lr"]["wrong"] == "must be a number, got 'fast'"
    assert rows["optim.lr"]["edited"]
    assert "x" not in answer["changes"]
    assert "yaml" not in answer, "the recipe is not valid"


def test_problems_are_shown_at_their_field(board: Board) -> None:
    assert messages(propose(board, data="0/rex")) == {
        "trigger": "1 image has no caption: give a word for what they show, or write captions."
    }
    assert "has an invalid form" in messages(propose(board, data="0/rex", trigger="a b", name="../x"))["name"]
    assert messages(propose(board, data="0/rex", trigger="a b", name="first"))["name"].startswith("There is a run")


@pytest.mark.parametrize(
    "name", ["0/nothing", "9/rex", "0/../..", "0/linked", "/etc", "shipped:../models", "0/rex/0.png"]
)
def test_other_folders_are_not_read(board: Board, name: str) -> None:
    answer = propose(board, data=name, trigger="a b")
    assert answer["base"] == ""
    assert messages(answer)["data"] in ("This folder is no longer there.", "Choose the folder with your images.")
    assert messages(propose(board, data="0/rex", model=name, trigger="a b"))["model"]


def test_words_and_names_stay_words(board: Board, root: Path) -> None:
    """Nothing in a trigger, a folder's name or a prompt becomes another setting or an option."""
    trigger = f"--out=/tmp/x {SCRIPT} {{caption}} run.name=y"
    answer = propose(board, data=f"0/{HOSTILE}", trigger=trigger)
    recipe = read(answer["base"], [f"{path}={text}" for path, text in answer["changes"].items()]).recipe
    assert recipe.data.captions.trigger == trigger
    assert recipe.data.paths == (root / HOSTILE,)
    assert recipe.run.folder is None


@pytest.mark.parametrize("address", ["/api/new/memory", "/api/new/doctor", "/api/check", "/api/start"])
def test_options_of_commands_are_no_settings(board: Board, address: str, tmp_path: Path) -> None:
    changes = {"--out": str(tmp_path / "out.yaml"), "--fit": "8GB"}
    status, answer = board.post(address, {"base": "mini", "changes": changes, "page": "1"})
    assert status == 409
    assert answer["code"] == "E1001"


def test_unknown_goals_and_bases_are_refused(board: Board) -> None:
    assert board.post("/api/new", {"goal": SCRIPT})[0] == 409
    assert board.post("/api/new", {})[0] == 409
    assert board.post("/api/new/memory", {"base": "file:0/x.yaml", "changes": {}})[0] == 404


def test_thumbnails_are_only_of_images_in_the_folder(board: Board) -> None:
    assert board.ask("/thumb/file?folder=0/rex&file=0.png&small=64")[2]["content-type"] == "image/webp"
    assert board.ask("/thumb/file?folder=shipped:shapes&file=00-red-circle.png&small=64")[0] == 200
    for query in (
        "folder=0/rex&file=stolen.png", "folder=0/rex&file=../runs/first/recipe.yaml", "folder=0/linked&file=0.png",
        "folder=shipped:shapes&file=../../models/tiny-sd/model_index.json", "folder=0/rex&file=/etc/passwd",
    ):  # fmt: skip
        assert board.ask(f"/thumb/file?{query}&small=64")[0] == 404, query
    assert board.ask("/thumb/file?folder=0/rex&file=0.txt&small=64")[0] == 415


def test_read_only_page_offers_no_new_run(root: Path) -> None:
    from mezzotint.board.guard import AccessPolicy

    with opened(root, policy=AccessPolicy(name="read-only", read_only=True)) as board:
        assert "opened with --read-only" in board.ask("/new")[1]
        assert 'href="/new"' not in board.ask("/")[1]
        assert board.post("/api/new", {"goal": "subject"})[0] == 403


# --- commands in the background ---


def ask(board: Board, address: str, **more: Any) -> dict[str, Any]:
    until = time.monotonic() + 60
    while True:
        status, answer = board.post(address, {"page": "1", "base": "mini-lora", "changes": {}} | more)
        assert status == 200, answer
        if not answer.get("is_pending"):
            return dict(answer)
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, ...]]]:
    """`printed(status, out, errors)`: commands print this; returns the list of those that ran."""

    def prepare(status: int, out: Any = "", errors: str = "") -> list[tuple[str, ...]]:
        ran: list[tuple[str, ...]] = []

        def run(command: BackgroundCommand, folder: Path) -> None:
            ran.append(command.line)
            text = out if isinstance(out, str) else json.dumps(out)
            command.result = subprocess.CompletedProcess(command.line, status, text.encode(), errors.encode())
            command.ended.set()

        monkeypatch.setattr(BackgroundCommand, "run", run)
        return ran

    return prepare


def test_memory_of_a_card_comes_with_settings_that_fit(board: Board, printed: Any) -> None:
    fit = {
        "settings": {"run.offload.blocks": 12}, "plan": {"needed": 7_000_000_000, "held_on_host": 24_000_000_000},
        "before": {"needed": 12_000_000_000},
        "reasons": [{"settings": {"run.offload.blocks": 12}, "text": f"saves {SCRIPT}"}],
    }  # fmt: skip
    ran = printed(0, {"fit": fit, "problems": []})
    answer = ask(board, "/api/new/memory", memory="8", page="fit")
    assert ran[-1][-2:] == ("--json", "--fit=8GB")
    assert answer["sentence"] == ("7 GB of the card’s memory, and 24 GB of the computer’s (computed, not measured)")
    assert answer["changes"] == {"run.offload.blocks": "12"}
    assert answer["rows"] == [{"text": "run.offload.blocks=12", "reason": f"saves {SCRIPT}"}]


def test_problems_of_a_check_are_at_their_fields(board: Board, printed: Any) -> None:
    problems = [{"code": "E1407", "message": "m/unet: has no weights"}, {"code": "E1754", "message": "too small"}]
    printed(2, {"fit": None, "memory": None, "problems": problems})
    listed = ask(board, "/api/new/memory", memory="8", page="problems")["messages"]
    assert [one["field"] for one in listed] == ["model", "memory"]
    printed(2, "", "error[E1202]: data.path: no images\n")
    listed = ask(board, "/api/new/memory", page="early")["messages"]
    assert listed == [{"field": "data", "kind": "wrong", "text": "E1202 data.path: no images"}]


def test_doctor_shows_the_three_worst_of_a_part_of_many_images(board: Board, printed: Any) -> None:
    findings = [
        {"status": status, "sentence": f"{number} {SCRIPT}", "advice": "mend it"}
        for number, status in enumerate(("mend", "mend", "look", "look", "know"))
    ]
    ran = printed(2, {"findings": findings})
    answer = ask(board, "/api/new/doctor", samples="10000", page="many")
    assert "data.max_samples=2000" in ran[-1]
    assert [one["status"] for one in answer["findings"]] == ["mend", "mend", "look"]
    assert (answer["more"], answer["about"]) == (1, "2,000 of the 10,000 images were examined.")


def test_newer_command_ends_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, begun = subprocess.Popen, threading.Event()

    def start(line: list[str], **how: Any) -> Any:
        begun.set()
        return begin([sys.executable, "-S", "-c", f"import time; time.sleep({60 if 'old' in line else 0})"], **how)

    monkeypatch.setattr(new_run_pages.subprocess, "Popen", start)
    monkeypatch.setattr(new_run_pages, "_WAIT_SECONDS", 0.0)
    commands = BackgroundCommands()
    old = commands.ask("1", ["check", "old"], tmp_path)
    assert begun.wait(10)
    new = commands.ask("1", ["check", "new"], tmp_path)
    assert old.ended.wait(10)
    assert new.ended.wait(10)
    assert old.result is not None
    assert old.result.returncode < 0
    assert new.result is not None
    assert new.result.returncode == 0
    assert commands.ask("1", ["check", "new"], tmp_path) is new, "the same question is not computed again"


def test_command_that_takes_too_long_is_ended(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = subprocess.Popen
    monkeypatch.setattr(
        new_run_pages.subprocess, "Popen",
        lambda line, **how: begin([sys.executable, "-S", "-c", "import time; time.sleep(60)"], **how),
    )  # fmt: skip
    monkeypatch.setitem(new_run_pages._SECONDS, "doctor", 0.1)
    assert (
        ask(board, "/api/new/doctor", page="slow")["messages"][0]["text"] == "`mezzotint doctor` was ended after 0.1 s."
    )


@pytest.mark.slow
def test_memory_of_the_model_that_ships(board: Board) -> None:
    answer = propose(board, data=SHAPES, trigger="wug dog")
    memory = ask(board, "/api/new/memory", base=answer["base"], changes=answer["changes"], memory="8", page="real")
    assert memory["messages"] == []
    assert memory["sentence"].endswith("of the card’s memory (computed, not measured)")
