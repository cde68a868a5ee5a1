"""User errors: messages, codes and exit statuses."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest

from mezzotint import errors, registry
from mezzotint.codes import SEE_MESSAGE
from mezzotint.errors import MezzotintError, Problem, RecipeError, Stopped
from mezzotint.settings.reading.paths import owner, sections
from mezzotint.settings.reference import error_codes, explain_code

SOURCE = Path(errors.__file__).parent
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MezzotintError)]


def codes_used() -> set[str]:
    """Every string E1234 in the source that is not part of a message or of the table of codes."""
    codes: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"E\d{4}", text):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        keys = {id(key) for node in nodes if _is_table(node) for key in node.value.keys}  # type: ignore[attr-defined]
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in keys:
                codes |= set(re.findall(r"^(?:error\[)?(E\d{4})\b(?!\s*[–-])", node.value))
    return codes


def _is_table(node: ast.AST) -> bool:
    """Whether a node is `CODES: … = {…}`."""
    is_named = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "CODES"
    return is_named and isinstance(node.value, ast.Dict)


def test_codes_in_the_source_are_exactly_those_explained() -> None:
    used = codes_used()
    assert used - set(error_codes()) == set(), "add a title to a table of codes"
    assert set(error_codes()) - used == set(), "explained but not used"


def test_settings_named_in_messages_exist() -> None:
    setting = re.compile(r"(?<![\w/.-])(?:model|data|optim|run|sample|objective)(?:\.[a-z_0-9]+)+(?![\w/(])")
    files = (".safetensors", ".html", ".log")
    # names of tensors, of an injection point, of a setting of another trainer, of a module
    others = (
        "model.diffusion_model",
        "model.language_model",
        "data.fetch",
        "data.per_batch_size",
        "data.cache.entries.",
    )
    named = {
        name: path.name
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "renamed.py"  # lists the names of earlier commits
        if path.parent.name != "ai_toolkit"  # keys of its jobs begin with the same words
        for text in re.findall(r'"[^"\n]*"', path.read_text("utf-8"))
        for name in setting.findall(re.sub(r"\{[^{}\"]*\}", "", text))
        if not name.endswith(files) and not name.startswith(others)
    }
    assert {n: place for n, place in named.items() if n not in sections() and owner(n) is None} == {}


def test_codes_are_sorted_with_a_title_and_at_most_one_paragraph() -> None:
    tables = [registry.find("codes", name).CODES for name in registry.names("codes")]
    assert all(list(table) == sorted(table) for table in tables)
    assert sum(map(len, tables)) == len(error_codes()), "two tables have the same code"
    for code, text in error_codes().items():
        title, _, paragraph = text.partition("\n")
        assert re.fullmatch(r"E1[0-9]{3}", code)
        assert 15 < len(title) <= 112, code
        assert title.endswith("."), code
        assert not paragraph or paragraph.endswith((".", ")", "`")), code
        assert "\n" not in paragraph, code
        assert "  " not in text, code


def test_code_is_explained_in_either_case() -> None:
    assert explain_code("e1000") == error_codes()["E1000"]
    assert explain_code("E1023") == f"{error_codes()['E1023']}\n{SEE_MESSAGE}"
    assert explain_code("E9999") is None


def test_exit_statuses_are_as_documented() -> None:
    statuses = {kind.__name__: kind.exit_status for kind in KINDS}
    assert statuses["Diverged"] == 3
    assert statuses["StorageError"] == 4
    assert statuses["OutOfMemory"] == 5
    assert statuses["PeerLost"] == 6
    rest = {name: status for name, status in statuses.items() if status == 2}
    assert {"RecipeError", "DatasetError", "CacheError", "WeightsError", "CheckpointError"} <= set(rest)


@pytest.mark.parametrize("kind", KINDS)
def test_pickled_error_keeps_its_code(kind: type[MezzotintError]) -> None:
    error = pickle.loads(pickle.dumps(kind("photos/a.png: broken", code="E1200")))
    assert type(error) is kind
    assert (error.message, error.code) == ("photos/a.png: broken", "E1200")


@pytest.mark.parametrize("kind", KINDS)
def test_default_code_of_each_error_is_explained(kind: type[MezzotintError]) -> None:
    assert kind("x").code in error_codes()


def test_error_shows_its_code_and_a_stop_only_its_message() -> None:
    assert str(errors.DatasetError("a.png: broken", code="E1200")) == "error[E1200]: a.png: broken"
    assert str(Stopped("saved at step 5", signal_number=2)) == "saved at step 5"


def test_problems_are_aligned_and_counted() -> None:
    one = RecipeError("r.yaml", problems=[Problem("optim.lr", "is wrong", "write 1", "E1007", 12)])
    assert str(one) == "r.yaml has 1 problem\n  line 12  optim.lr  E1007 is wrong; write 1"
    assert one.code == "E1007"
    two = RecipeError("r.yaml", problems=[Problem("a", "x", code="E1001", line=3), Problem("bcd", "y", code="E1002")])
    assert str(two) == "r.yaml has 2 problems\n  line 3  a    E1001 x\n  given   bcd  E1002 y"
