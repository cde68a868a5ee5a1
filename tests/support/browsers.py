"""Whether a browser for page tests is installed on this machine."""

from __future__ import annotations

import importlib.util
import shutil

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WITHOUT = (
    "the pages were not looked at in a browser: `apt-get install chromium` and `pip install playwright` bring what "
    "these tests need"
)


def is_there() -> bool:
    """Whether there is a browser, and Playwright to steer it."""
    return CHROMIUM is not None and importlib.util.find_spec("playwright") is not None
