"""`make docs`: writes what in docs/ comes from the source: the recipe reference, its JSON Schema, the error codes, and
the marked tables of metrics.md and resume.md.

`pages()` is the truth; a test holds the files equal to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from mezzotint import errors
from mezzotint.dialects import everydream2, mindone_sdxl, open_sora_plan
from mezzotint.dialects.base import Dialect, Row
from mezzotint.dialects.diffusers import sd, sdxl
from mezzotint.errors import CODES, MezzotintError
from mezzotint.recipe import reference
from mezzotint.training.callbacks._scalars import TAGS

DOCS = Path(__file__).resolve().parent.parent / "docs"
RANGES = {
    "E10": "Recipes and command lines",
    "E11": "Recipes and command lines, continued",
    "E12": "Data",
    "E13": "Cache",
    "E14": "Model and weights",
    "E15": "Checkpoints and run folders",
    "E16": "Training",
    "E17": "Storage and memory",
    "E18": "Processes",
    "E19": "Signals",
}
"""What each range of codes is about."""


def pages() -> dict[Path, str]:
    """Every file that is written, with its whole text. Raises ValueError when a page has lost its marks."""
    return {
        DOCS / "recipe-reference.md": reference.markdown(),
        DOCS / "recipe.schema.json": reference.json_schema_text(),
        DOCS / "errors.md": error_page(),
        DOCS / "metrics.md": with_part(DOCS / "metrics.md", "tags", tag_table()),
        DOCS / "diffusers.md": diffusers_page(),
        DOCS / "everydream2.md": everydream_page(),
        DOCS / "mindone-sdxl.md": with_part(DOCS / "mindone-sdxl.md", "flags", flag_table(mindone_sdxl.DIALECT)),
        DOCS / "open-sora-plan.md": with_part(DOCS / "open-sora-plan.md", "flags", flag_table(open_sora_plan.DIALECT)),
        DOCS / "resume.md": with_part(DOCS / "resume.md", "rules", rule_table()),
    }


def error_page() -> str:
    """docs/errors.md: exit statuses, then every code by range."""
    text = [
        "# Error codes",
        "",
        "Every error has a code, which `mezzotint explain CODE` expands. Written from the source by `make docs`.",
        "",
        *table(("kind", "exit status", "about"), [_kind(kind) for kind in kinds()]),
        "",
    ]
    for prefix, codes in groupby(sorted(CODES), key=lambda code: code[:3]):
        text += [
            f"## {RANGES[prefix]}",
            "",
            *table(("code", "what it means"), [(f"`{c}`", _line(CODES[c])) for c in codes]),
        ]
        text.append("")
    return "\n".join(text)


def kinds() -> list[type[MezzotintError]]:
    """The kinds of errors, in the order of the source."""
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, MezzotintError)]
    return [kind for kind in found if kind is not MezzotintError]


def tag_table() -> list[str]:
    """Every TensorBoard tag with its meaning."""
    return table(("tag", "meaning"), [(f"`{tag}`", _line(words)) for tag, words in TAGS.items()])


def flag_table(dialect: Dialect) -> list[str]:
    """Every option of a dialect: its default there, what it decides here."""
    rows = []
    for row in dialect.rows:
        came = f" ({row.since})" if row.since else ""
        default = "-" if row.default in (None, False) else f"`{row.default}`"
        here = ", ".join(f"`{path}`" for path in row.to) or row.outcome
        rows.append((f"`--{row.flag}`{came}", default, here, _line(row.about)))
    return table(("flag", "default", "here", ""), rows)


def diffusers_page() -> str:
    """docs/diffusers.md with the flags of its two scripts."""
    page = DOCS / "diffusers.md"
    text = with_part(page, "flags", flag_table(sd.DIALECT))
    return with_part_of(page, text, "flags of sdxl", flag_table(sdxl.DIALECT))


def everydream_page() -> str:
    """docs/everydream2.md with its three tables: flags, the keys of optimizer.json, those of the file of validation."""
    page = DOCS / "everydream2.md"
    text = with_part(page, "flags", flag_table(everydream2.DIALECT))
    for name, one in zip(("optimizer", "validation"), everydream2.DIALECT.tables, strict=True):
        text = with_part_of(page, text, name, key_table(one.rows, one.shipped))
    return text


def key_table(rows: Sequence[Row], shipped: Mapping[str, object]) -> list[str]:
    """Every key of a file: what ships, what it decides here."""
    found = []
    for row in rows:
        value = shipped.get(row.flag, row.default)
        default = "-" if value in (None, False) else f"`{list(value) if isinstance(value, tuple) else value}`"
        found.append((f"`{row.flag}`", default, ", ".join(f"`{p}`" for p in row.to) or row.outcome, _line(row.about)))
    return table(("key", "default", "here", ""), found)


def rule_table() -> list[str]:
    """Which settings have which rule on resume, the exceptions first."""
    by_rule: dict[str, list[str]] = {kind: [] for kind in ("never", "recorded", "free", "allow")}
    for row in reference.rows():
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
    """Writes what differs and says so."""
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
