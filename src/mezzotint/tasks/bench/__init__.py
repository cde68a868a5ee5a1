"""The command `bench`.

From outside: nothing but the command, `bench.run`.
"""
