"""Models and adapters in another form, or made of others: the verbs `convert`, `merge`, `extract`, `resize`.

From outside: nothing but the verbs, and `convert.single_file_of`.
"""
