"""The commands that convert and combine models and adapters: `convert`, `merge`, `extract`, `resize`, `check-adapter`.

From outside: nothing but the commands, and `convert.single_file_of`.
"""
