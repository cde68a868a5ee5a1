"""Networks that diffusers and transformers do not have, one per file.

From outside: every file without an underscore.
"""
