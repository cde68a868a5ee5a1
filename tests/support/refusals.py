"""What the reader is told when something is wrong, as tests expect it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mezzotint.errors import MezzotintError


@contextmanager
def refused(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[MezzotintError]]:
    """Expects an error of the reader's world of this code, whose sentence matches."""
    with pytest.raises(MezzotintError, match=match) as caught:
        yield caught
    assert caught.value.code == code
