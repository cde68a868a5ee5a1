"""What is computed in which number type.

From outside: every file.
"""
