"""The verb `bench`.

From outside: nothing but `bench`.
"""
