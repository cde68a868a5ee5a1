"""The verb `convert`.

From outside: nothing but `convert`.
"""
