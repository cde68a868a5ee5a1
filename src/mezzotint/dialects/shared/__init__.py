"""What several dialects need: reading command lines, launchers, files of settings; writing a recipe.

From outside: every file without an underscore.
"""
