"""Codes of what can go wrong with reading other trainers' command lines and files; see `mezzotint/codes`."""

CODES: dict[str, str] = {
    "E1016": "A word of another trainer's command line or file is not one of that trainer's options.\n"
    "Unknown options are never ignored, even where the trainer itself would ignore them.",
    "E1017": "An option of another trainer's command line is missing, has no value, or has an invalid one.",
    "E1018": "An option of another trainer's command line asks for something that Mezzotint cannot do.\n"
    "Options that merely have no effect are notes, not errors.",
    "E1019": "Another trainer's command line begins with a launcher of several processes.\n"
    "One process cannot become many. With `--processes=N` before the `--`, `translate` and `check` look ahead as if "
    "they ran.",
    "E1080": "A `target:` in another trainer's YAML names a class that Mezzotint does not know, or that belongs "
    "elsewhere.\n"
    "Targets are looked up in a table; nothing is imported.",
    "E1081": "A `target:` or one of its params in another trainer's YAML asks for something that Mezzotint cannot do.",
}
