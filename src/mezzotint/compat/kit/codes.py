"""Error codes of reading other trainers' command lines and files; see `mezzotint/codes`."""

CODES: dict[str, str] = {
    "E1016": "A word in another trainer's command line or file is not one of that trainer's options.\n"
    "Unknown options are never ignored, even if the trainer itself ignores them.",
    "E1017": "An option of another trainer's command line is missing, has no value, or has an invalid one.",
    "E1018": "An option of another trainer's command line asks for something that Mezzotint cannot do.\n"
    "Options that only have no effect are notes, not errors.",
    "E1019": "Another trainer's command line starts with a launcher of several processes.\n"
    "Start them with the printed torchrun command. With `--processes=N` before the `--`, `translate` and `check` "
    "show the result for N processes.",
    "E1026": "A recipe cannot be written for another trainer, which lacks its model or what it trains.\n"
    "Settings that only differ are notes, not errors.",
    "E1080": "A `target:` in another trainer's YAML names a class that Mezzotint does not know, or a class of "
    "another role.\n"
    "Targets are looked up in a table; nothing is imported.",
    "E1081": "A `target:` or one of its params in another trainer's YAML asks for something that Mezzotint cannot do.",
}
