"""Adapters (LoRA, DoRA, LoHa, LoKr): their files, formulas, training, merging and extraction.

From outside: every file; `networks`, `trained` and `laying` need peft at run time.
"""
