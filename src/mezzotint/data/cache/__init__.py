"""Latents and text embeddings on disk, found by what made them.

From outside: `store` (bytes by key), `entries` (what they mean), `text_rows`, `carried` (a cache on object storage).
"""
