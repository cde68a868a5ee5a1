"""Converting and combining models and adapters: the commands `convert`, `merge`, `extract`, `resize`.

From outside: nothing but the commands, and `convert.single_file_of`.
"""
