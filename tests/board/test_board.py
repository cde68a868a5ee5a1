"""The command `board`: its output, its errors and its imports."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mezzotint
from mezzotint.board import server
from mezzotint.board.guard import Guard
from mezzotint.cli import main


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls of `serve`: (application, address)."""
    calls: list[Any] = []

    def serve(app: Any, own: Any) -> None:
        calls.append((app, own.getsockname()))
        own.close()

    monkeypatch.setattr(server, "serve", serve)
    return calls


def test_address_with_its_token_is_printed(
    served: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["board", str(tmp_path)]) == 0
    ((app, (host, port)),) = served
    assert isinstance(app, Guard)
    assert host == "127.0.0.1"
    policy = app.policy
    assert f"http://127.0.0.1:{port}/?token={policy.token}" in capsys.readouterr().out
    assert not policy.read_only
    assert not policy.any_address
    assert len(policy.token) >= 32


def test_each_server_has_its_own_token(served: list[Any], tmp_path: Path) -> None:
    main(["board", str(tmp_path), "--read-only"])
    main(["board", str(tmp_path)])
    first, second = (app.policy for app, _ in served)
    assert first.token != second.token
    assert (first.read_only, second.read_only) == (True, False)


def test_other_addresses_need_a_password(served: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(tmp_path), "--host=0.0.0.0"]) == 2
    assert "error[E1941]" in capsys.readouterr().err
    (tmp_path / "word").write_text("short\n")
    assert main(["board", str(tmp_path), "--host=0.0.0.0", f"--password-file={tmp_path / 'word'}"]) == 2
    assert main(["board", str(tmp_path), "--host=0.0.0.0", f"--password-file={tmp_path / 'none'}"]) == 2
    assert served == []
    (tmp_path / "word").write_text("long enough\n")
    line = ["board", str(tmp_path), "--host=0.0.0.0", f"--password-file={tmp_path / 'word'}", "--allow-host=Gpu.Box"]
    assert main(line) == 0
    ((app, _),) = served
    assert app.policy.password == "long enough"
    assert app.policy.allows_host("gpu.box:80")
    assert app.policy.allows_host("10.0.0.7:80")
    assert not app.policy.allows_host("evil.example")
    output = capsys.readouterr()
    assert app.policy.token not in output.out
    assert "long enough" not in output.out + output.err


def test_wrong_arguments_have_an_error_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["board", str(tmp_path / "none")]) == 2
    assert "error[E1943]" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["board", str(tmp_path), f"--port={taken.getsockname()[1]}"]) == 2
    assert "error[E1944]" in capsys.readouterr().err
    assert main(["board", str(tmp_path), "--port=99999"]) == 2
    assert "error[E1944]: mezzotint board: cannot listen at 127.0.0.1:99999 (" in capsys.readouterr().err


def test_missing_package_is_reported_with_the_pip_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("starlette.applications", "mezzotint.board.app"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["board", str(tmp_path)]) == 2
    assert "pip install 'mezzotint[board]'" in capsys.readouterr().err


def test_only_the_board_imports_its_packages() -> None:
    package = Path(mezzotint.__file__).parent
    wanted = re.compile(r"^\s*(?:from|import) (?:starlette|uvicorn|mezzotint\.board)\b", re.MULTILINE)
    users = {path.relative_to(package).parts[0] for path in package.rglob("*.py") if wanted.search(path.read_text())}
    assert users == {"board"}


def test_board_does_not_import_torch_nor_other_commands_the_board() -> None:
    code = (
        "import sys\nfrom mezzotint import cli\ncli.main(['explain', 'optim.lr'])\n"
        "assert not {'starlette', 'uvicorn', 'jinja2', 'mezzotint.board'} & set(sys.modules)\n"
        "import mezzotint.board.app, mezzotint.board.server\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
