"""The command `sample`.

From outside: the command, `sample.run`, and `again`, the line that draws a picture once more.
"""
