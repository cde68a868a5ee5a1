"""The keys of one object of a job file, as a draft sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.reading import Value


@dataclass(frozen=True, slots=True)
class Keys:
    """start: what the draft puts before a key of the object."""

    draft: Draft
    start: str

    def flag(self, key: str) -> str:
        """The draft's flag of a key."""
        return self.start + key

    def __getitem__(self, key: str) -> Value:
        return self.draft.values[self.start + key]

    def is_given(self, key: str) -> bool:
        """Whether the file has a value for a key."""
        return self.draft.is_given(self.start + key)

    def has_section(self, name: str) -> bool:
        """Whether the file has a key of a section."""
        return any(flag.startswith(f"{self.start}{name}.") for flag in self.draft.named)

    def number(self, key: str) -> float:
        return self.draft.number(self.start + key)

    def integer(self, key: str) -> int:
        return self.draft.integer(self.start + key)

    def text(self, key: str) -> str:
        """The text of a key, "" if it has none."""
        return self.draft.text(self.start + key)

    def texts(self, key: str) -> tuple[str, ...]:
        """The list of a key, () if it has none."""
        value = self[key]
        return tuple(str(one) for one in value) if isinstance(value, tuple) else ()

    def first(self, *keys: str) -> Value:
        """The value of the first key that is not None."""
        return next((self[key] for key in keys if self[key] is not None), None)

    def set(self, path: str, value: Any, *keys: str) -> None:
        """Sets a recipe path. keys: where the value comes from, the most important first."""
        self.draft.set(path, value, *(self.start + key for key in keys))

    def apply(self, *keys: str) -> None:
        """As `Draft.apply`."""
        self.draft.apply(*(self.start + key for key in keys))

    def check(self) -> bool:
        """Whether all values are within the bounds of their rows; refuses others."""
        fitting = [self.draft.check_bounds(flag) for flag in self.draft.rows if flag.startswith(self.start)]
        return all(fitting)

    def note(self, key: str, text: str) -> None:
        self.draft.note(self.start + key, text)

    def refuse(self, key: str, message: str, remedy: str = "", code: str = "E1018") -> None:
        self.draft.refuse(self.start + key, message, remedy, code)

    def refuse_until(self, feature: str, key: str, remedy: str = "leave it out") -> None:
        self.draft.refuse_until(feature, self.start + key, remedy)
