"""Models and adapters in another form, or made of others: the commands `convert`, `merge`, `extract`, `resize`.

From outside: nothing but the commands, and `convert.single_file_of`.
"""
