"""Single-file checkpoints: reading, writing, and the further content of such files.

From outside: every file.
"""
