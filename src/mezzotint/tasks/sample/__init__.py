"""The verb `sample`.

From outside: the verb, `sample.run`, and `again`, the line that draws a picture once more.
"""
