"""Fake CUDA streams and events that record the order of calls."""

from __future__ import annotations

from typing import Any


class Line:
    """In the place of a stream or an event of CUDA: what is asked of it, in order."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said

    def __getattr__(self, name: str) -> Any:
        return lambda *others: self.said.append(" ".join([self.name, name, *(o.name for o in others)]))

    def __enter__(self) -> None:
        self.said.append(f"within {self.name}")

    def __exit__(self, *error: object) -> None:
        self.said.append(f"out of {self.name}")
