"""`make docs`: writes what in docs/ comes from the source, and the index of tests/support. In docs/ this is the recipe
reference, its JSON Schema, the error codes, the table of cards, the list of decisions, and the marked tables of other
trainers and their options, of metrics.md, resume.md and structure.md. Deletes pages of options of trainers that are no
longer there.

`pages()` is the truth; a test holds the files equal to it.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import card_pages
import recipe_pages
from mezzotint import errors, registry
from mezzotint.errors import MezzotintError
from mezzotint.settings import reference
from mezzotint.settings.reading.paths import settings
from mezzotint.tasks.reading import foreign
from mezzotint.training.callbacks._scalars import TAGS

_PARAGRAPH = "\n\n"
DOCS = Path(__file__).resolve().parent.parent / "docs"
SOURCE = DOCS.parent / "src" / "mezzotint"
SUPPORT = DOCS.parent / "tests" / "support"
REFERENCE = DOCS / "reference"
OPTIONS = REFERENCE / "options"
TRAINERS = DOCS / "coming-from" / "README.md"
ERROR_PAGES: dict[str, dict[str, str]] = {
    "recipes.md": {"E10": "Recipes and command lines", "E11": "Recipes and command lines, continued"},
    "data.md": {"E12": "Data", "E13": "Cache"},
    "model.md": {"E14": "Model and weights"},
    "running.md": {
        "E15": "Checkpoints and run folders",
        "E16": "Training",
        "E17": "Storage and memory",
        "E18": "Processes",
        "E19": "Signals",
    },
}
"""The pages of the error codes: what each range is about."""
AREAS = (
    "Recipes and settings",
    "Data",
    "Cache",
    "Models and weights",
    "Adapters",
    "Diffusion",
    "Training",
    "Distributed training",
    "Checkpoints and run folders",
    "Sampling",
    "Commands and Python",
    "Board",
    "Performance",
    "Security",
    "Other trainers",
    "Project",
)
"""What a decision can be about: the headings of the list of decisions, in this order."""


def pages() -> dict[Path, str]:
    """Every file that is written, with its whole text. Raises ValueError when a page has lost its marks."""
    metrics, resume = REFERENCE / "metrics.md", DOCS / "guides" / "resume.md"
    return {
        DOCS / "recipe.schema.json": reference.json_schema_text(),
        **{REFERENCE / "recipe" / name: text for name, text in recipe_pages.pages().items()},
        **{REFERENCE / "errors" / name: text for name, text in error_pages().items()},
        metrics: with_part(metrics, "tags", tag_table()),
        resume: with_part(resume, "rules", rule_table()),
        DOCS / "structure.md": with_part(DOCS / "structure.md", "rooms", room_table()),
        **option_pages(),
        DOCS / "guides" / "cards.md": card_pages.page(),
        DOCS / "guides" / "python.md": notebook_page(DOCS / "guides" / "python.ipynb"),
        DOCS / "decisions" / "README.md": decisions_page(),
        SUPPORT / "README.md": support_page(),
    }


def support_page() -> str:
    """The modules of the tests' support package, each with the first paragraph of its docstring."""
    rows = []
    for path in sorted([*SUPPORT.glob("*.py"), SUPPORT / "hostile" / "__init__.py"]):
        name = path.parent.name + "/" if path.stem == "__init__" else path.stem
        about = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if name != "support/":
            rows.append(f"| `{name}` | {' '.join(about.partition(_PARAGRAPH)[0].split())} |")
    head = (
        "# Support code of the tests\n\nTests import it as `from support.images import …`. Written by `make docs`.\n\n"
    )
    return head + "\n".join(["| module | contents |", "|---|---|", *rows, ""])


def notebook_page(notebook: Path) -> str:
    """A notebook as a page: its texts, and its code without what it printed."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells]
    parts = [
        text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
        for cell, text in zip(cells, texts, strict=True)
    ]
    head, *rest = parts
    note = f"This page is made from the notebook [{notebook.name}]({notebook.name}), which you can run."
    return "\n\n".join([head, note, *rest]) + "\n"


def error_pages() -> dict[str, str]:
    """Files of docs/reference/errors: README.md with the kinds of errors, and a page for each group of codes."""
    unknown = {code[:3] for code in reference.error_codes()} - {
        prefix for ranges in ERROR_PAGES.values() for prefix in ranges
    }
    if unknown:
        raise ValueError(f"ERROR_PAGES has no page for the codes {sorted(unknown)}")
    return {"README.md": error_index(), **{name: error_page(ranges) for name, ranges in ERROR_PAGES.items()}}


def error_index() -> str:
    """The kinds of errors with their exit statuses, and where the codes of each range are."""
    ranges = [(prefix, about, page) for page, ranges in ERROR_PAGES.items() for prefix, about in ranges.items()]
    text = [
        "# Error codes",
        "",
        "Every error has a code, which `mezzotint explain CODE` explains. Written from the source by `make docs`.",
        "",
        *table(("codes", "about"), [(f"[{prefix}..]({page})", about) for prefix, about, page in ranges]),
        "",
        *table(("kind", "exit status", "about"), [_kind(kind) for kind in kinds()]),
        "",
    ]
    return "\n".join(text)


def error_page(ranges: Mapping[str, str]) -> str:
    """The codes of some ranges. ranges: the first three characters of a code, and what such codes are about."""
    text = [f"# Error codes {', '.join(f'{prefix}..' for prefix in ranges)}", ""]
    for prefix, about in ranges.items():
        rows = [
            (f"`{code}`", _line(means)) for code, means in reference.error_codes().items() if code.startswith(prefix)
        ]
        text += [f"## {about}", "", *table(("code", "what it means"), rows), ""]
    return "\n".join(text)


def decisions_page() -> str:
    """docs/decisions/README.md: every decision by its title, below the area that its page names."""
    areas: dict[str, list[str]] = {area: [] for area in AREAS}
    for path in sorted((DOCS / "decisions").glob("0*.md")):
        head = re.match(r"# (\d{4}): (.+)\n\nArea: (.+)\n", path.read_text("utf-8"))
        if not head or head[1] != path.name[:4] or head[3] not in areas:
            raise ValueError(
                f"{path}: begins with '# {path.name[:4]}: TITLE', an empty line, 'Area: AREA'; areas: {AREAS}"
            )
        areas[head[3]].append(f"- [{int(head[1])}. {head[2]}]({path.name})")
    text = ["# Decisions", "", "Design decisions and their reasons, by area. This list is written by `make docs`.", ""]
    for area, titles in areas.items():
        text += [f"## {area}", "", *titles, ""]
    return "\n".join(text)


def room_table() -> list[str]:
    """Every folder inside of a package: what lives there, and how many files."""
    rows = []
    for init in sorted(SOURCE.glob("*/*/__init__.py")):
        about = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
        folder = init.parent.relative_to(SOURCE).as_posix()
        rows.append((f"`{folder}/`", _line(about.partition("\n\n")[0]), str(len(list(init.parent.glob("*.py"))) - 1)))
    return table(("folder", "what lives there", "files"), rows)


def kinds() -> list[type[MezzotintError]]:
    """The kinds of errors, in the order of the source."""
    classes = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, MezzotintError)
    ]
    return [kind for kind in classes if kind is not MezzotintError]


def tag_table() -> list[str]:
    """Every TensorBoard tag with its meaning."""
    return table(("tag", "meaning"), [(f"`{tag}`", _line(words)) for tag, words in TAGS.items()])


def flag_table(dialect: Any) -> list[str]:
    """Every option of a dialect: its default, the setting that it decides."""
    rows = []
    for row in dialect.rows:
        came = f" ({row.since})" if row.since else ""
        default = "-" if row.default in (None, False) else f"`{row.default}`"
        rows.append((f"`--{row.flag}`{came}", default, row.effect, _line(row.about)))
    return table(("flag", "default", "here", ""), rows)


def option_pages() -> dict[Path, str]:
    """The index of other trainers, and files of docs/reference/options: an index, and every option of each dialect, of
    EveryDream2 the keys of its files as well."""
    dialects = {name: foreign.find_dialect(name) for name in registry.names("dialects")}
    listed = [f"- [{name}.md]({name}.md): {_line(dialect.about)}" for name, dialect in dialects.items()]
    texts = {
        TRAINERS: with_part(TRAINERS, "trainers", trainer_table(dialects)),
        OPTIONS / "README.md": with_part(OPTIONS / "README.md", "pages", listed),
    }
    for name, dialect in dialects.items():
        page = OPTIONS / f"{name}.md"
        text = with_part(page, "flags", flag_table(dialect))
        for one in dialect.tables:
            text = with_part_of(page, text, one.prefix.removesuffix(":"), key_table(one.rows, one.shipped))
        texts[page] = text
    return texts


def trainer_table(dialects: Mapping[str, Any]) -> list[str]:
    """Every command line of other trainers, with `guide.md` of its folder in `compat/` and the page of its options."""
    rows = []
    for name, dialect in dialects.items():
        guide = Path(str(registry.find("dialects", name).__file__)).parent / "guide.md"
        title = guide.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        links = (f"[{title}]({_link(TRAINERS, guide)})", f"[options]({_link(TRAINERS, OPTIONS / f'{name}.md')})")
        rows.append((_line(dialect.about), f"`--as {name}`", *links))
    return table(("command line", "name", "guide", "every option"), rows)


def _link(page: Path, target: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


def key_table(rows: Sequence[Any], shipped: Mapping[str, object]) -> list[str]:
    """Every key of a file: what ships, what it decides here."""
    cells = []
    for row in rows:
        value = shipped.get(row.flag, row.default)
        default = "-" if value in (None, False) else f"`{list(value) if isinstance(value, tuple) else value}`"
        cells.append((f"`{row.flag}`", default, row.effect, _line(row.about)))
    return table(("key", "default", "here", ""), cells)


def rule_table() -> list[str]:
    """Which settings have which rule on resume, the exceptions first."""
    by_rule: dict[str, list[str]] = {kind: [] for kind in ("never", "recorded", "free", "allow")}
    for row in settings():
        by_rule[row.change].append(f"`{row.path}`")
    return table(("rule", "settings"), [(kind, ", ".join(paths)) for kind, paths in by_rule.items()])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    marks = "|" + "---|" * len(head)
    return [f"| {' | '.join(head)} |", marks, *(f"| {' | '.join(row)} |" for row in rows)]


def with_part(page: Path, name: str, lines: Sequence[str]) -> str:
    """A page with the lines between its marks `<!-- begin NAME: … -->` and `<!-- end NAME -->` replaced."""
    return with_part_of(page, page.read_text("utf-8"), name, lines)


def with_part_of(page: Path, text: str, name: str, lines: Sequence[str]) -> str:
    """`with_part` for a text of the page."""
    begin = f"<!-- begin {name}: written by tools/write_docs.py -->"
    pattern = f"{re.escape(begin)}\n(.*?)<!-- end {name} -->"
    body = "\n".join([begin, *lines, f"<!-- end {name} -->"])
    text, count = re.subn(pattern, lambda _: body, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{page}: needs the marks of {name} once, has them {count} times")
    return text


def _kind(kind: type[MezzotintError]) -> tuple[str, str, str]:
    # a Stopped run leaves with 128 + the signal's number
    status = "128 + n" if kind is errors.Stopped else str(kind.exit_status)
    return f"`{kind.__name__}`", status, _line((kind.__doc__ or "").split(". ")[0].rstrip("."))


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Writes what differs, deletes what has no source, and says so."""
    written = pages()
    folders = (OPTIONS, REFERENCE / "recipe", REFERENCE / "errors")
    for page in sorted({page for folder in folders for page in folder.iterdir()} - written.keys()):
        page.unlink()
        print(f"deleted {page.relative_to(DOCS.parent)}")
    for path, text in written.items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
