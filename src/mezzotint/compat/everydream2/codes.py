"""Codes of what can go wrong with EveryDream2's files; see `mezzotint/codes`."""

CODES: dict[str, str] = {
    "E1217": "Files that say how images are trained (yaml, txt, manifests) cannot be read as they are.\n"
    "Nothing is left out silently, because a folder's file holds for all its images.",
}
