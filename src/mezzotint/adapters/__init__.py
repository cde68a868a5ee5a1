"""Adapters: small changes of a model's layers (LoRA, DoRA, LoHa, LoKr), their files and what is computed from them.

From outside: `modules`, `names`, `targets`, `files`, `merging`, `extraction`, `networks` (needs peft).
"""
