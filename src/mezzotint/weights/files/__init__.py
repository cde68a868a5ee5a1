"""Tensor files: safetensors, other registered formats, pickles (read in a sandboxed process), embeddings.

From outside: every file without an underscore.
"""
