"""Single files of tensors: safetensors, pickles in a process of their own, MindSpore checkpoints, embeddings.

From outside: every file without an underscore.
"""
