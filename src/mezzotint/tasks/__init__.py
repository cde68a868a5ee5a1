"""The commands, one module each. Only they read a whole recipe; every package below takes its section of it.

A command is a module with `run(arguments: Sequence[str]) -> int`, which returns the exit status, and one entry in the
table of `reading/commands.py`. From outside: every file without an underscore, for the page (`board`).
"""
