"""The verb `sample`.

From outside: nothing but `sample`.
"""
