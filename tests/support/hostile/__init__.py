"""Hostile files of every reader: what is wrong with each, what is expected, and what looks on while it is read."""
