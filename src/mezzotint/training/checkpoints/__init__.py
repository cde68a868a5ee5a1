"""Checkpoints: their content, writing them in the background, and rows of sharded weights.

From outside: every file.
"""
