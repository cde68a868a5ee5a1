"""Error codes of EveryDream2's files; see `mezzotint/codes`."""

CODES: dict[str, str] = {
    "E1217": "Files with training settings of images (YAML, txt, manifests) cannot be read.\n"
    "None of them is skipped silently, because a folder's file applies to all its images.",
}
