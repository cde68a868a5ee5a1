"""What watches a run: it looks at each step and asks; the trainer acts. To add one: a file here.

From outside: every file without an underscore.
"""
