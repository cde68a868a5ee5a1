"""What is raised for a single image; the others are captioned all the same."""

from __future__ import annotations


class CaptionError(Exception):
    """Why there is no caption of one image."""
