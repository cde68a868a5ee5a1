"""Whether a browser for page tests is installed on this machine."""

from __future__ import annotations

import importlib.util
import shutil

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = (
    "the browser tests were skipped: install a browser with `apt-get install chromium` and Playwright with "
    "`pip install playwright`"
)


def is_installed() -> bool:
    """Whether a browser and Playwright are installed."""
    return CHROMIUM is not None and importlib.util.find_spec("playwright") is not None
