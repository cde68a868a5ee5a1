"""The page Recipe: the form, the command and the file are the same recipe."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from mezzotint.board.acting import actions, recipe_pages
from mezzotint.cli import main
from mezzotint.settings.reading.paths import settings
from mezzotint.settings.reading.read import digest_of, read, read_text, shipped_recipes
from support.board_runs import SCRIPT, Board, opened, write_run


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    root = tmp_path_factory.mktemp("recipes")
    write_run(root / "run", recipe={"run": {"name": "first"}, "data": {"path": ["x"]}})
    with opened(root) as board:
        yield board


def live(board: Board, base: str = "tiny_cpu", **changes: Any) -> dict[str, Any]:
    words = {path.replace("__", "."): value for path, value in changes.items()}
    status, answer = board.post("/api/recipe", {"base": base, "changes": words})
    assert status == 200
    assert isinstance(answer, dict)
    return answer


def check(board: Board) -> dict[str, Any]:
    status, answer = board.post("/api/check", {"base": "tiny_cpu", "changes": {}})
    assert status == 200
    return dict(answer)


def test_every_setting_has_a_field_with_help_and_default(board: Board) -> None:
    status, text, _ = board.ask("/recipe?base=tiny_cpu")
    assert status == 200
    shown = set(re.findall(r'data-path="([^"]+)"', text))
    assert {one.path for one in settings()} - {"schema"} == shown
    assert text.count('class="help"') == len(shown)
    assert "number at least 0; default 1e-05." in html.unescape(text)


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_unchanged_form_gives_the_recipe(board: Board, name: str) -> None:
    answer = live(board, name)
    assert [one for one in answer["problems"] if one["where"] != "data.path"] == [], "its data may be missing here"
    assert answer["command"] == f"mezzotint train {name}"
    again = read_text(answer["yaml"], name)
    assert digest_of(again.recipe) == digest_of(read(name).recipe)
    assert board.ask(f"/recipe?base={name}")[0] == 200


def test_changes_are_in_the_command_and_in_the_file(board: Board) -> None:
    answer = live(board, optim__lr="2e-4", sample__prompts='["a fox", "two"]', run__name="a b")
    assert (
        answer["command"]
        == ("mezzotint train tiny_cpu optim.lr=2e-4 'sample.prompts=[\"a fox\", \"two\"]' 'run.name=a b'")
        or answer["problems"]
    )
    answer = live(board, optim__lr="2e-4", sample__prompts='["a fox", "two"]')
    assert "lr: 0.0002" in answer["yaml"]
    assert "- two" in answer["yaml"]


@pytest.mark.parametrize(("text", "line"), [("1,5", "1.5"), (" 1,5 ", "1.5"), ("1.5", "1.5"), ("1,500,000", None)])
def test_decimal_comma_is_accepted_in_numbers(board: Board, text: str, line: str | None) -> None:
    answer = live(board, optim__lr=text)
    assert bool(answer["problems"]) == (line is None)
    assert line is None or f"optim.lr={line}" in answer["command"]
    assert "lr: 1.5" in answer["yaml"] or line is None
    assert "a,b" in live(board, sample__negative_prompt="a,b")["command"]


def test_problems_have_their_setting_and_code(board: Board) -> None:
    problems = live(board, optim__lr="fast", data__batch_size="0", run__nonsense=SCRIPT)["problems"]
    codes = {one["where"]: one["code"] for one in problems}
    assert codes["optim.lr"] == "E1002"
    assert codes["data.batch_size"] == "E1007"
    assert "run.nonsense" in codes


def test_missing_data_path_is_a_problem_of_its_field(board: Board, tmp_path: Path) -> None:
    (problem,) = live(board, data__path="nothing")["problems"]
    assert (problem["where"], problem["code"]) == ("data.path", "E1201")
    assert "nothing does not exist" in problem["what"]
    assert live(board, data__path="run")["problems"] == [], "a folder below the folder of the page"
    assert live(board, data__path="shapes")["problems"] == [], "a shipped data set"
    assert live(board, data__path=f"s3://photos/x\n{tmp_path}")["problems"] == []
    assert live(board, data__path="somebody/photos", data__format="metadata")["problems"] == [], "a data set on the Hub"


def test_check_result_has_a_verdict_and_the_settings_with_problems(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = "mezzotint check x\nmemory  a  1 MB\n{}: a step's peak is 109 MB of the 13.1 GB\n  that are free\n"
    several = (
        "x has 2 problems\n  given  model  E1401 model.path: none is not there\n  line 3  data   E1201 No data.path.\n"
    )
    answers = [
        (0, report.format("fits"), ""), (5, report.format("does not fit"), ""), (0, "mezzotint check x\n", "reading"),
        (2, "", "error[E1201]: nothing: does not exist; data.path names the folder"), (2, "", several),
    ]  # fmt: skip
    results = [(status, out.encode(), err.encode()) for status, out, err in answers]
    monkeypatch.setattr(
        recipe_pages.subprocess, "run",
        lambda line, **how: subprocess.CompletedProcess(line, (one := results.pop(0))[0], *one[1:]),
    )  # fmt: skip
    fits, small, plain, missing, two = (check(board) for _ in answers)
    assert fits["verdict"] == "This recipe fits: a step's peak is 109 MB of the 13.1 GB that are free."
    assert small["verdict"].startswith("This recipe does not fit: a step's peak")
    assert (plain["verdict"], plain["problems"]) == ("This recipe can run.", [])
    assert missing["verdict"] == "This recipe cannot run."
    assert [one["where"] for one in missing["problems"]] == ["data.path"]
    assert [(one["code"], one["where"]) for one in two["problems"]] == [("E1401", "model.path"), ("E1201", "data.path")]


@pytest.mark.parametrize(
    "base",
    [
        "../x",
        "/etc/passwd",
        "run:9/x",
        "run:0/../x",
        "",
        "tiny_cpu.yaml",
        "file:0/../x.yaml",
        "file:/etc/x.yaml",
        "file:0/run/history.jsonl",
        "file:0/none.yaml",
        "file:0/run",
    ],
)
def test_only_shipped_recipes_and_those_of_runs_are_read(board: Board, base: str) -> None:
    assert board.post("/api/recipe", {"base": base, "changes": {}})[0] == 404
    assert board.ask(f"/recipe?base={base}")[0] == 404


def test_invalid_recipe_shows_its_error(board: Board) -> None:
    (board.pages.roots.folders[0] / "broken.yaml").write_text("schema: 1\noptim: {lr: <b>fast</b>}\n")
    status, text, _ = board.ask("/recipe?base=file:0/broken.yaml")
    assert (status, "This did not work" in text, "<b>" in text) == (409, True, False)
    assert "optim.lr" in text


@pytest.mark.parametrize(
    "name", ["run.folder", "run.export.folder", "run.export.single_file_folder", "run.profile.folder"]
)
def test_run_that_writes_outside_the_folders_is_not_started(
    name: str, board: Board, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[list[str]] = []
    monkeypatch.setattr(
        actions.StartedProcesses, "start", lambda self, line, out, folder: lines.append(line) or "started"
    )
    root = board.pages.roots.folders[0]
    (root / "out").symlink_to(tmp_path)
    for place in (tmp_path / "x", "../x", "out/x", "~/x"):
        status, answer = board.post("/api/start", {"base": "tiny_cpu", "changes": {name: str(place)}})
        assert (status, answer["code"]) == (409, "E1949")
        assert answer["error"].startswith(
            f"error[E1949]: {name}={place}: the page starts only runs that write to {root}"
        )
    (root / "out").unlink()
    assert lines == []
    for place in (root / "runs" / "x", "x"):
        assert board.post("/api/start", {"base": "tiny_cpu", "changes": {name: str(place)}})[0] == 200
    assert len(lines) == 2


def test_recipe_is_saved_below_the_folder_and_never_overwritten(board: Board) -> None:
    root = board.pages.roots.folders[0]
    value = {"base": "tiny_cpu", "changes": {"optim.lr": "3e-4"}, "file": "mine.yaml"}
    status, answer = board.post("/api/save", value)
    assert (status, answer["command"]) == (200, f"mezzotint train {root / 'mine.yaml'}")
    assert read(root / "mine.yaml").recipe.optim.lr == 3e-4
    status, answer = board.post("/api/save", value | {"changes": {}})
    assert (status, answer["code"]) == (409, "E1014")
    assert read(root / "mine.yaml").recipe.optim.lr == 3e-4
    assert answer.get("base") is None
    assert live(board, "file:0/mine.yaml")["yaml"].count("lr: 0.0003") == 1
    page = board.ask("/recipe?base=file:0/mine.yaml")[1]
    assert '<option value="file:0/mine.yaml" selected>mine.yaml</option>' in page
    for name in ("../out.yaml", "/tmp/out.yaml", "x.sh", ".hidden.yaml", "none/x.yaml", "n" * 300 + ".yaml", ""):
        status, answer = board.post("/api/save", value | {"file": name})
        assert (status, answer["code"]) == (409, "E1949"), name
    assert board.post("/api/save", value | {"changes": {"optim.lr": "x"}, "file": "bad.yaml"})[0] == 409
    assert not (root / "bad.yaml").exists()


def test_recipe_is_started_and_checked_with_the_command_shown(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[list[str], Path | None]] = []

    def start(self: object, line: list[str], run: Path, folder: Path | None = None) -> str:
        lines.append((line, folder))
        return f"started {run}"

    monkeypatch.setattr(actions.StartedProcesses, "start", start)
    monkeypatch.setattr(recipe_pages, "_run_check", lambda *line: lines.append(line) or {"text": "fits"})
    root = board.pages.roots.folders[0]
    value = {"base": "tiny_cpu", "changes": {"run.name": "mine"}}
    assert board.post("/api/start", value) == (200, {"message": f"started {root}/mine", "run": "0/mine"})
    _, answer = board.post("/api/check", value | {"dry": True})
    assert answer == {"text": "fits", "command": "mezzotint check tiny_cpu run.name=mine --dry"}
    assert lines == [
        (["train", "tiny_cpu", "run.name=mine", "run.folder=mine"], root),
        (["check", "tiny_cpu", "run.name=mine", "--dry"], root),
    ]
    with monkeypatch.context() as context:
        context.setattr(board.pages, "rows", list)
        assert board.post("/api/start", value)[1]["run"] == "0/runs/mine"
    assert lines[-1][0] == ["train", "tiny_cpu", "run.name=mine"], "the folder itself has no run"
    assert board.post("/api/start", value | {"text": "schema: 1\n"})[1]["code"] == "E1949"
    assert board.post("/api/start", value | {"changes": {"optim.lr": "x"}})[0] == 409


def test_started_run_has_a_page_before_it_writes_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import pathlib, time\nprint('reading', flush=True)\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)"
    begin = subprocess.Popen
    children: list[subprocess.Popen[bytes]] = []

    def popen(line: list[str], **how: Any) -> subprocess.Popen[bytes]:
        children.append(begin([sys.executable, "-c", f"{code}\nprint('no data')\nraise SystemExit(2)"], **how))
        return children[-1]

    monkeypatch.setattr(actions.subprocess, "Popen", popen)
    monkeypatch.setattr(actions, "EARLY_EXIT_SECONDS", 0.0)
    with opened(tmp_path) as board:
        status, answer = board.post("/api/start", {"base": "tiny_cpu", "changes": {"run.name": "mine"}})
        assert (status, answer["run"]) == (200, "0/runs/mine")
        page = board.ask("/run?run=0/runs/mine")[1]
        assert 'class="state starting"' in page
        (tmp_path / "go").touch()
        until = time.monotonic() + 20
        while Path(f"/proc/{children[0].pid}").exists():  # the process is reaped without a request
            assert time.monotonic() < until
            time.sleep(0.02)
        page = board.ask("/run?run=0/runs/mine")[1]
        assert 'class="state failed"' in page
        assert "reading\nno data" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go", "runs"]
    assert (tmp_path / "runs" / "mine" / "logs" / "started.out").is_file()


@pytest.mark.parametrize("folder", ["/tmp/elsewhere", "../elsewhere", "runs/../../x"])
def test_run_folder_outside_the_folders_is_refused(folder: str, board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions.StartedProcesses, "start", lambda *words: pytest.fail("the run was started"))
    status, answer = board.post("/api/start", {"base": "tiny_cpu", "changes": {"run.folder": folder}})
    assert (status, answer["code"]) == (409, "E1949")


def run_command(line: list[str], *, cwd: Path, **_: Any) -> subprocess.CompletedProcess[bytes]:
    """Replaces `subprocess.run` for `python -P -m mezzotint …`: runs the command in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), contextlib.chdir(cwd):
        status = main(line[4:])
    return subprocess.CompletedProcess(line, status, out.getvalue().encode(), errors.getvalue().encode())


@pytest.mark.slow
def test_check_output_is_that_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe_pages.subprocess, "run", run_command)
    with opened(tmp_path) as board:
        output = check(board)
    assert output["status"] == 0, output
    assert "memory" in output["text"]
    assert output["verdict"].startswith("This recipe fits")


@pytest.mark.parametrize(
    ("words", "path", "why"),
    [
        ("learning rate", "optim.lr", "learning_rate of kohya, diffusers, OneTrainer and SimpleTuner"),
        ("network_dim", "model.adapter.rank", "network_dim of kohya: the default of network_dim is 4"),
        ("--train_batch_size", "data.batch_size", ""),
        ("batch", "data.batch_size", ""),
        ("scheduler", "optim.schedule.kind", ""),
    ],
)
def test_search_finds_settings_by_synonyms(board: Board, words: str, path: str, why: str) -> None:
    status, text, _ = board.ask(f"/api/settings?{urlencode({'q': words})}")
    assert status == 200
    best = json.loads(text)[0]
    assert best["path"] == path
    assert why in best["why"]


def test_search_for_nothing_finds_nothing(board: Board) -> None:
    for words in ("", "  ", "x", "?" * 5000, "\0"):
        assert board.ask(f"/api/settings?{urlencode({'q': words}, errors='replace')}")[1] == "[]"
