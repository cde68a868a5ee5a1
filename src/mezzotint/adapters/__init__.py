"""Adapters: small changes of a model's layers (LoRA, DoRA, LoHa, LoKr), their files and what is computed from them.

From outside: every file; `networks`, `trained` and `laying` need peft when they compute.
"""
