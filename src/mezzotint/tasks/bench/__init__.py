"""The verb `bench`.

From outside: nothing but the verb, `bench.run`.
"""
