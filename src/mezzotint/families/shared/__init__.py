"""What several families have in common.

From outside: every file, for families alone.
"""
