"""`import mezzotint` is cheap, provides the names of the API, and imports torch only for names that need it."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

import mezzotint as mz


@pytest.mark.parametrize("name", mz.__all__)
def test_each_name_exists_and_has_a_docstring(name: str) -> None:
    assert (getattr(mz, name).__doc__ or "").strip()
    assert name in dir(mz)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'mezzotint' has no attribute 'fit'"):
        mz.fit  # noqa: B018


def cpu_seconds(code: str) -> float:
    """The least of five starts of Python."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def test_import_costs_at_most_three_starts_of_python() -> None:
    assert cpu_seconds("import mezzotint") <= 3 * cpu_seconds("pass")


def test_recipe_is_read_without_torch() -> None:
    code = "import sys, mezzotint as mz; mz.recipe('tiny_cpu', 'optim.lr=1e-3'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
