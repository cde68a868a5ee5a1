"""Checkpoints: what they hold, how they are written behind the steps, and rows of shared weights.

From outside: every file.
"""
