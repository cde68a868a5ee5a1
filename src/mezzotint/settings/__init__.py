"""What is wanted: a recipe as typed, frozen data. No torch here; reading a recipe takes milliseconds.

From outside: every file, `recipe` by `tasks` alone.
"""
