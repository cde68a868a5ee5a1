"""Recipes as typed, frozen settings. Without torch, so that reading a recipe takes milliseconds.

From outside: every file, `recipe` only by `tasks`.
"""
