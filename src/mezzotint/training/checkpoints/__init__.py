"""Checkpoints: contents, writing in the background, sharded weights.

From outside: every file.
"""
