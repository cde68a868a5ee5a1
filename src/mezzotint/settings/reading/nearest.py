"""The setting that an unknown key most likely means: by its name, and by the words of help texts.

Known names of other trainers are in `foreign_names`. Unknown names may have few letters in common with ours, but the
help of a setting often contains their words. So every word of an unknown key is looked up in the name, the path and the
help of every setting, and the setting that matches most of the key is proposed.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Sequence

from mezzotint.settings.counting import format_names
from mezzotint.settings.reading.foreign_names import foreign_names, meaning_of
from mezzotint.settings.reading.paths import Setting, by_path, entry_section, first_sentence, sections, settings
from mezzotint.settings.renamed import new_path

_SAME = {
    "dir": "folder",
    "directory": "folder",
    "output": "run",
    "checkpointing": "gradient_checkpointing",
    "checkpoint": "save",
    "picture": "image",
    "pictures": "image",
    "grad": "gradient",
}
"""Our words for words of other trainers."""
_SECTIONS = {
    "checkpoint": "save",
    "checkpointing": "save",
    "eval": "validation",
    "evaluation": "validation",
    "holdout": "validation",
    "lora": "adapter",
    "sample": "preview",
    "val": "validation",
    "validate": "validation",
}
"""Our sections for words of other trainers, when a section is meant."""

_EMPTY = frozenset(("the", "a", "an", "of", "to", "and", "or", "in", "per", "num", "use", "is", "max", "train"))
_ENOUGH = 0.86
_MISSPELLED = 0.95  # similarity up to 1: one wrong letter in a name of another trainer
_LONGEST = 200  # characters of a path that is looked up


def nearest(path: str) -> str | None:
    """The known path that an unknown one most likely means, or None. Also finds a key in the wrong section."""
    if len(path) > _LONGEST:
        return None
    paths = {section: section for section in sections()} | {s.path: s.path for s in settings()}
    if path.replace("-", "_").lower() in paths:
        return path.replace("-", "_").lower()
    if new_path(path) is not None:
        return new_path(path)
    name = path.rpartition(".")[2]
    match = meaning_of(name) or meaning_of(
        next(iter(difflib.get_close_matches(name, foreign_names(), 1, _MISSPELLED)), "")
    )
    if match is not None:
        return match.path
    scored = [(_score(path, name, setting), -index, setting.path) for index, setting in enumerate(settings())]
    scored += [(_score_section(path, name, section), -1000, section) for section in sections()]
    best = max(scored)
    return best[2] if best[0] >= _ENOUGH else None


def search(phrase: str) -> list[str]:
    """Sections and settings whose path or help contains all words of a phrase: first matches in the path, then in the
    first sentence. Settings of a section that matches are left out."""
    query = set(_split_words(phrase))
    helps = {**sections(), **{setting.path: setting.help for setting in settings()}}
    ranks: dict[str, int] = {}
    for path, text in helps.items() if query else ():
        name = _split_words(path)
        fields = (name, (*name, *_split_words(first_sentence(text))), (*name, *_split_words(text)))
        rank = next((rank for rank, field_words in enumerate(fields) if query <= set(field_words)), None)
        if rank is not None:
            ranks[path] = rank
    return sorted((path for path in ranks if path.rpartition(".")[0] not in ranks), key=ranks.__getitem__)


def advice(path: str) -> str:
    """The hint for an unknown path: `did you mean optim.lr?`, what to do instead of another trainer's setting without a
    counterpart, or where to look."""
    if (entry := entry_section(path)) is not None:
        section, _, name = path.rpartition(".")
        names = list(entry.model_fields)
        alike = difflib.get_close_matches(name, names, 1)
        return f"did you mean {section}.{alike[0]}?" if alike else f"it has {format_names(names, 30)}"
    renamed = new_path(path)
    if renamed is not None:
        return f"it was renamed to {renamed}; `mezzotint migrate RECIPE` renames it in a file"
    near = nearest(path)
    match = meaning_of(path.rpartition(".")[2]) if path not in by_path() else None
    note = match.note if match is not None and match.path == near else ""
    if near is not None:
        return f"did you mean {near}?" + (f" ({note})" if note else "")
    if note:
        return note
    section = path.rpartition(".")[0]
    while section and section not in sections():
        section = section.rpartition(".")[0]
    return f"`mezzotint explain {section or 'recipe'}` lists its settings"


def _score(path: str, name: str, setting: Setting) -> float:
    query = _split_words(name)
    first = first_sentence(setting.help)
    rest = setting.help[len(first) :]
    fields = (
        (1.0, _split_words(setting.name)),
        (0.8, _split_words(setting.path.replace(".", "_"))),
        (0.6, _split_words(first)),
        (0.25, _split_words(rest)),
    )
    worths = [max((worth for worth, field_words in fields if word in field_words), default=0.0) for word in query]
    cover = sum(worths) / max(1, len(worths))
    phrase = 0.7 if len(query) > 1 and " ".join(query) in " ".join(_split_words(first)) else 0.0
    return (
        cover
        + phrase
        + _explained_fraction(setting.name, query)
        + _name_score(path, name, setting.path)
        + _home(path, setting)
    )


def _home(path: str, setting: Setting) -> float:
    """0.6 for a setting with this very name in the requested section, by its own name or another trainer's, and for one
    with nearly this name in exactly this section."""
    home, _, name = path.lower().rpartition(".")
    if home and home == setting.path.rpartition(".")[0]:
        return 0.6 if difflib.SequenceMatcher(None, name, setting.name).ratio() >= 0.9 else 0.0
    requested, actual = home.rpartition(".")[2], setting.path.rpartition(".")[0].rpartition(".")[2]
    return 0.6 if name == setting.name and requested and _SECTIONS.get(requested, requested) == actual else 0.0


def _score_section(path: str, name: str, section: str) -> float:
    query = _split_words(name)
    hits = sum(1.0 for word in query if word in _split_words(section.rpartition(".")[2]))
    last = section.rpartition(".")[2]
    return hits / max(1, len(query)) + _explained_fraction(last, query) + _name_score(path, name, section)


def _explained_fraction(name: str, query: Sequence[str]) -> float:
    """Up to 0.5: the fraction of a known name's words in the query. `max_train_steps` means `steps`, not
    `max_nonfinite_steps`."""
    name_words = _split_words(name)
    return 0.5 * sum(word in query for word in name_words) / max(1, len(name_words))


def _name_score(path: str, name: str, known_path: str) -> float:
    """The similarity of two names, 0 to about 1; equal or nearly equal names weigh most, the same section a little."""
    last = known_path.rpartition(".")[2]
    # without words that carry no meaning: `max_train_steps` is `steps`
    alike = difflib.SequenceMatcher(
        None, "_".join(_split_words(name)) or name, "_".join(_split_words(last)) or last
    ).ratio()
    # as written, too: `imag` is similar to `image`, not to the word that `image` is mapped to
    alike = max(alike, difflib.SequenceMatcher(None, name.lower(), last).ratio())
    whole = difflib.SequenceMatcher(None, path.lower(), known_path).ratio()
    near = 1.2 if alike >= 0.94 else 0.6 if alike >= 0.75 and abs(len(name) - len(last)) < 4 else 0.4 * alike
    home = path.rpartition(".")[0]
    return near + 0.3 * whole + (0.3 if home and known_path.rpartition(".")[0] == home else 0.0)


@functools.cache
def _split_words(text: str) -> tuple[str, ...]:
    split = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()
    words = [_SAME.get(word, word) for word in re.findall(r"[a-z0-9]+", split)]
    return tuple(_stem(word) for word in words if word not in _EMPTY)


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
