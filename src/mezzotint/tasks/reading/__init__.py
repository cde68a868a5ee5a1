"""Shared by commands before anything is opened: arguments, commands of other trainers, runs to resume.

From outside: every file without an underscore.
"""
