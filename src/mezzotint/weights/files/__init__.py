"""Single files of tensors: safetensors, other registered formats, pickles in a process of their own, embeddings.

From outside: every file without an underscore.
"""
