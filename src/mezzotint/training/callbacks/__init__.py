"""Callbacks: each looks at every step and returns an action, which the trainer performs. To add one: a file here.

From outside: every file without an underscore.
"""
