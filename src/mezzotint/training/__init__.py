"""The training loop, its state, and callbacks.

From outside: every file.
"""
