"""What several families have in common.

From outside: every file for families, and `new_words` for whoever loads one.
"""
