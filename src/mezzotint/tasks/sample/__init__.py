"""The command `sample`.

From outside: the command, `sample.run`, and `again`, which keeps models open between command lines.
"""
