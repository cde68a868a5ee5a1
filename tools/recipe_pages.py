"""The recipe reference, docs/reference/recipe: a table of settings for each section, read off the sections. Written by
`write_docs.py`."""

from __future__ import annotations

from mezzotint.settings.reading.paths import sections, settings
from mezzotint.settings.reference import ON_RESUME, default_text, describe_type

LARGE = 1600
"""Bytes of a section's table from which on it has a page of its own, although it is inside another section."""


def pages() -> dict[str, str]:
    """The recipe reference as files of a folder: README.md, and a page a section with the small sections inside it.
    A large section inside another has a page of its own."""
    tables: dict[str, list[str]] = {}
    for section in sections():
        table = _table(section)
        top = section.partition(".")[0]
        is_large = section != top and len("\n".join(table).encode()) > LARGE
        tables.setdefault(section if is_large else top, []).extend(table)
    texts = {name: "\n".join([f"# Recipe reference: `{name}`", "", *table]) for name, table in tables.items() if table}
    return {"README.md": _index(tuple(texts)), **{_page(name): text for name, text in texts.items()}}


def _index(names: tuple[str, ...]) -> str:
    about = sections()
    lines = [f"- [`{name}`]({_page(name)}): {about[name]}" for name in names]
    head = ["# Recipe reference", "", *_introduction()]
    return "\n".join([*head, "**Sections**", "", *lines, "", *_table("")])


def _introduction() -> list[str]:
    return [
        "Every setting: its type, its default, what a changed value does when a run is resumed, what it is for.",
        "Made from the source by `make docs`; a test keeps it current.",
        "",
        "**On resume**",
        "",
        *(f"- `{kind}`: {words}" for kind, words in ON_RESUME.items()),
        "",
    ]


def _page(section: str) -> str:
    return section.replace(".", "-") + ".md"


def _table(section: str) -> list[str]:
    """The settings directly in a section, "" for the top."""
    inside = [row for row in settings() if row.path.rpartition(".")[0] == section]
    if not inside:
        return []
    about = sections().get(section, "The recipe itself.")
    head = [f"## `{section}`" if section else "## Top", "", about, ""]
    head += ["| setting | type | default | on resume | what it does |", "|---|---|---|---|---|"]
    for row in inside:
        cells = (f"`{row.path}`", describe_type(row.shape), f"`{default_text(row)}`", row.change, row.help)
        head.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*head, ""]
