"""The loop, what it remembers, and what watches it."""
