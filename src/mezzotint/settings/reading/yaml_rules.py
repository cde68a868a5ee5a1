"""From the text of a recipe to plain values, by strict rules: YAML 1.2 scalars, one mapping, nothing hidden.

PyYAML only splits the text into events; no YAML loader builds values. Scalars follow the core schema of YAML 1.2:
`1e-6` is a number, `010` is ten, and `no`, `on`, `1:30` and dates are texts. Refused, each with line and column:
repeated keys, tags, merge keys, more than 100 nodes through aliases, more than 32 levels, files over 1 MB, encodings
other than UTF-8, control characters, a second document, more than 25,000 keys in one mapping.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from mezzotint.errors import Problem, RecipeError

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
MAX_ALIAS_NODES = 100
MAX_DIGITS = 300
MAX_KEYS = 25_000
"""In one mapping."""
MAX_PROBLEMS = 50
"""In one file; after that reading stops."""

KeyPath = tuple[str | int, ...]
"""The keys and indices of a value in a document: ("data", "path", 0)."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: dict[str, bool | None] = (
    dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
    | dict.fromkeys(("", "~", "null", "Null", "NULL"), None)
)
_TOML = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*([ \t]*(?:\[\[?[\w. -]+\]\]?|[\w.-]+[ \t]*=[^\n]*))[ \t]*(?:#[^\n]*)?\r?(?:\n|$)"
)
"""The start of a TOML file: a table or `key = value`, after comments."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Document:
    """A recipe's text as plain values. tree: the top mapping. lines: 1-based line of every key and list entry.
    problems: what the rules refuse, in the order of the file; if there are any, the tree holds what could be read."""

    tree: dict[str, Any]
    lines: dict[KeyPath, int]
    problems: tuple[Problem, ...] = ()

    def line_near(self, key_path: KeyPath) -> int | None:
        """The line of a value, or of the nearest enclosing one."""
        ends = (key_path[:end] for end in range(len(key_path), 0, -1))
        return next((self.lines[end] for end in ends if end in self.lines), None)


@dataclass(slots=True)
class _Builder:
    """Builds values from events, and collects problems. anchors: values, and their number of nodes; opened: anchors of
    collections that are still being read."""

    name: str
    events: Iterator[Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    nodes: int = 0
    alias_nodes: int = 0
    root: Any = None

    def read_node(self, event: Any, key_path: KeyPath) -> Any:
        """The value that starts with an event. Raises RecipeError for too many levels and for invalid keys."""
        self.lines.setdefault(key_path, _line(event))
        if isinstance(event, yaml.AliasEvent):
            return self.expand_alias(event, key_path)
        before = self.nodes
        self.nodes += 1
        if len(self.problems) > MAX_PROBLEMS:
            raise RecipeError(self.name, problems=self.problems[:MAX_PROBLEMS])
        self.refuse_tag(event, key_path, "value")
        if isinstance(event, yaml.ScalarEvent):
            # `implicit[0]`: written plain, without quotes or block marks
            value: Any = scalar(event.value) if event.implicit[0] and event.tag is None else event.value
        else:
            if len(key_path) >= MAX_DEPTH:
                raise self.error_at(event, key_path[:3], f"nested deeper than {MAX_DEPTH} levels")
            self.opened.append(event.anchor)
            value = (
                self.read_mapping(key_path)
                if isinstance(event, yaml.MappingStartEvent)
                else self.read_sequence(key_path)
            )
            self.opened.pop()
        if event.anchor:
            self.anchors[event.anchor] = (value, self.nodes - before)
        return value

    def read_sequence(self, key_path: KeyPath) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            values.append(self.read_node(event, (*key_path, len(values))))
        return values

    def read_mapping(self, key_path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self.error_at(
                    event, key_path, "a key is a plain word, not a list, a mapping or an alias", "E1004"
                )
            if len(values) >= MAX_KEYS:
                raise self.error_at(event, key_path, f"has more than {MAX_KEYS:,} keys; this is not a settings file")
            inside = (*key_path, event.value)
            self.refuse_tag(event, inside, "key")
            is_merged, is_repeated = event.value == "<<" and event.implicit[0], event.value in values
            if is_merged:
                message = "merge keys are not allowed in recipes; write the settings out"
                self.problems.append(_problem_at(event, _join_keys(key_path) or "<<", message))
            elif is_repeated:
                message = f"this key is given twice, first on line {self.lines[inside]}; keep one of them"
                self.problems.append(_problem_at(event, _join_keys(inside), message, code="E1005"))
            else:
                self.lines.setdefault(inside, _line(event))
            value = self.read_node(next(self.events), inside)
            if not is_merged and not is_repeated:
                values[event.value] = value
        return values

    def refuse_tag(self, event: Any, key_path: KeyPath, word: str) -> None:
        if event.tag is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            message = f"the tag {tag} is not allowed in recipes; write the plain {word}"
            self.problems.append(_problem_at(event, _join_keys(key_path), message))

    def expand_alias(self, event: Any, key_path: KeyPath) -> Any:
        """A copy of the value of an alias, within the limit on all aliases of a document."""
        if event.anchor not in self.anchors:
            is_open = event.anchor in self.opened
            message = (
                f"*{event.anchor} refers to itself; write the value out"
                if is_open
                else f"there is no &{event.anchor} before this alias; put a text that starts with * in quotes"
            )
            self.problems.append(_problem_at(event, _join_keys(key_path), message))
            return None
        value, nodes = self.anchors[event.anchor]
        self.alias_nodes += nodes
        self.nodes += nodes
        if self.alias_nodes > MAX_ALIAS_NODES:
            raise self.error_at(event, key_path, f"aliases bring in more than {MAX_ALIAS_NODES} values; write them out")
        return copy.deepcopy(value)

    def error_at(self, event: Any, key_path: KeyPath, message: str, code: str = "E1006") -> RecipeError:
        return RecipeError(self.name, problems=[_problem_at(event, _join_keys(key_path) or "file", message, code=code)])


def read_file(path: Path, name: str) -> str:
    """The text of a recipe file. name: as the user wrote it. Raises RecipeError E1006 (size, encoding, control
    characters) and E1011 (cannot be read)."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RecipeError(f"{name} cannot be read: {error.strerror}", code="E1011") from None
    if len(raw) > MAX_BYTES:
        message = f"is larger than {MAX_BYTES:,} bytes; lists of files belong in the data folder"
        raise _file_error(name, message, 1)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_and_column(raw[: error.start])
        message = f"column {column}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _file_error(name, message, line) from None
    return text


def load(text: str, name: str) -> Document:
    """Reads a whole recipe. name: the file as the user wrote it, for messages.

    Raises RecipeError if the text cannot be read: E1004 if it is not YAML, E1006 for control characters, too many
    levels and endless aliases. Everything else is collected in `problems`.
    """
    bad = _CONTROL.search(text)
    if bad:
        line, column = _line_and_column(text[: bad.start()].encode("utf-8", "surrogatepass"))
        raise _file_error(name, f"column {column}: control character U+{ord(bad[0]):04X}; delete it", line)
    if (toml := _TOML.match(text)) is not None:
        line = text[: toml.start(1)].count("\n") + 1
        message = "this is TOML, not YAML; write settings as `optim:` and, indented below it, `lr: 1e-5`"
        raise _file_error(name, message, line, "E1004")
    builder = _build(text, name)
    if builder.root is None and not builder.problems:
        raise _file_error(name, "the file is empty; a recipe needs at least data.path, see `mezzotint ls`", 1, "E1004")
    if not isinstance(builder.root, dict):
        message = f"the top of a recipe must be a list of settings such as `optim:`, got {_kind(builder.root)}"
        if not builder.problems:
            raise _file_error(name, message, 1, "E1004")
        builder.root = {}
    return Document(builder.root, builder.lines, tuple(builder.problems))


def value(text: str, name: str) -> Any:
    """Reads one value of a command line: `[a, b]`, `{a: 1}` and quoted texts are YAML, anything else is one scalar.

    So a prompt with a colon or a number sign needs no quotes. Raises RecipeError as `load`, for `problems`, too.
    """
    stripped = text.strip()
    if not stripped.startswith(("[", "{", '"', "'")):
        return scalar(stripped)
    if _CONTROL.search(text):
        raise RecipeError(name, problems=[Problem(name, "contains a control character; delete it", code="E1006")])
    builder = _build(stripped, name, flow=True)
    if builder.problems:
        first = builder.problems[0]
        raise RecipeError(name, problems=[Problem(name, first.message, first.remedy, first.code)])
    return builder.root


def scalar(text: str) -> str | int | float | bool | None:
    """A plain scalar by the core schema of YAML 1.2 (YAML 1.2.2, 10.3.2). Integers of more than 64 bits become floats;
    with more than 300 digits they stay texts."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text) and len(text) <= MAX_DIGITS:
        number = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        return number if abs(number) < 1 << 64 else _as_float(number)
    if _FLOAT.fullmatch(text):
        return float(text)
    special = _SPECIAL.fullmatch(text)
    if special:
        return float(f"{special[1] or ''}{'inf' if special[2] else 'nan'}")
    return text


def _as_float(number: int) -> float:
    return float(number) if abs(number) < 1 << 1023 else math.copysign(math.inf, number)


def _build(text: str, name: str, *, flow: bool = False) -> _Builder:
    builder = _Builder(name, _events(text, name, flow=flow))
    documents = 0
    for event in builder.events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                message = "a recipe is one document; remove this and everything below"
                builder.problems.append(_problem_at(event, "---", message))
                break
            _check_directives(event, builder)
        elif isinstance(event, yaml.NodeEvent):
            builder.root = builder.read_node(event, ())
    return builder


def _events(text: str, name: str, *, flow: bool) -> Iterator[Any]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        raise RecipeError(name, problems=[_syntax(error, text, name, flow=flow)]) from None
    except UnicodeEncodeError:
        where, line = (name, None) if flow else ("file", 1)
        raise RecipeError(name, problems=[Problem(where, "is not UTF-8 text", code="E1004", line=line)]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise _file_error(name, f"is not YAML: {str(error).splitlines()[0]}", 1, "E1004") from None


def _check_directives(event: Any, builder: _Builder) -> None:
    if event.tags:
        builder.problems.append(_problem_at(event, "%TAG", "tags are not allowed in recipes; remove the line"))
    if event.version and tuple(event.version) != (1, 2):
        version = ".".join(str(part) for part in event.version)
        builder.problems.append(_problem_at(event, "%YAML", f"recipes are YAML 1.2, got {version}; remove the line"))


def _syntax(error: yaml.MarkedYAMLError, text: str, name: str, *, flow: bool) -> Problem:
    cause = _describe_cause(error.problem or "this is not YAML")
    mark = error.problem_mark or error.context_mark
    if cause.endswith(("not closed", "alias or anchor")):
        mark = error.context_mark or mark  # where it was opened, not where the file ends
    line, column = getattr(mark, "line", 0), getattr(mark, "column", 0)
    lines = text.split("\n")
    row = lines[line] if line < len(lines) else ""
    where = name if flow else (row.strip().partition(":")[0][:40] or "file")
    if "\t" in row[: column + 1]:
        message = f"column {row.index(chr(9)) + 1}: a tab; indent with spaces"
    elif re.search(r"hexdec|unknown escape", cause):
        message = f"column {column + 1}: within double quotes a backslash starts an escape sequence"
        return Problem(
            where, message, f"write the value in single quotes{_quoted_hint(row)}", "E1004", None if flow else line + 1
        )
    else:
        message = f"column {column + 1}: {cause}"
    advice = "" if "\t" in row[: column + 1] else _advice(row, cause)
    return Problem(where, message, advice, "E1004", None if flow else line + 1)


def _quoted_hint(row: str) -> str:
    """`: 'C:\\Users\\me'`, the value of a row in single quotes; "" if it cannot be determined."""
    value = re.search(r'"([^"\']*)"', row)
    return f": '{value[1]}'" if value else ""


def _describe_cause(problem: str) -> str:
    causes = {
        "mapping values are not allowed": "a colon that YAML reads as the end of a key",
        "did not find expected key": "the indentation does not fit the lines above",
        "expected <block end>": "the indentation does not fit the lines above",
        "could not find expected ':'": "a key without its colon",
        "did not find expected ',' or ']'": "a list that is not closed",
        "expected ',' or ']'": "a list that is not closed",
        "did not find expected ',' or '}'": "a mapping that is not closed",
        "expected ',' or '}'": "a mapping that is not closed",
        "found unexpected end of stream": "a quote that is not closed",
        "cannot start any token": "a character that no value can start with",
        "alphabetic or numeric character": "a * or & at the start of a text, which YAML reads as an alias or anchor",
    }
    return next(
        (description for part, description in causes.items() if part in problem), f"this is not YAML ({problem})"
    )


def _advice(row: str, cause: str) -> str:
    if cause.endswith("not closed"):
        return (
            "look at this line and the next" if "quote" in cause else f"close it with {'}' if 'map' in cause else ']'}"
        )
    if re.search(r":\s*[@`%]", row) or row.count(":") > 1 or "alias or anchor" in cause:
        return "put the value in quotes"
    return "look at this line and the one above"


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _problem_at(event: Any, where: str, message: str, *, code: str = "E1006") -> Problem:
    mark = event.start_mark
    return Problem(where, f"column {mark.column + 1}: {message}", code=code, line=mark.line + 1)


def _file_error(name: str, message: str, line: int, code: str = "E1006") -> RecipeError:
    return RecipeError(name, problems=[Problem("file", message, code=code, line=line)])


def _line_and_column(before: bytes) -> tuple[int, int]:
    line = before.count(b"\n") + 1
    return line, len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1


def _join_keys(key_path: KeyPath) -> str:
    return ".".join(str(part) for part in key_path)


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"the text {str(value)[:40]!r}"


def line_of(text: str, key_path: KeyPath) -> int | None:
    """The 1-based line of a value in a JSON text, parsed as YAML, which contains JSON and keeps lines. None for the few
    texts that are only valid JSON, and for long ones."""
    if len(text) > MAX_BYTES:
        return None
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError):
        return None
    line: int | None = None
    for part in key_path:
        if isinstance(node, yaml.MappingNode):
            pairs = [(key, value) for key, value in node.value if key.value == part]
            if not pairs:
                break
            key, node = pairs[-1]
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            node = node.value[cast(int, part)]
            line = node.start_mark.line + 1
    return line
