"""Code shared by several families.

From outside: every file for families, and `new_words` for code that loads a family.
"""
