"""From a family, a solver and prompts to pictures, and to sheets of pictures.

From outside: every file.
"""
