"""Code shared by several families.

From outside: every file for families, and `learned_tokens` for code that loads a family.
"""
