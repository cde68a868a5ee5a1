"""Networks that diffusers and transformers do not have. One file, one network.

From outside: every file without an underscore.
"""
