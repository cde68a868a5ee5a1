"""Latents and text embeddings on disk, addressed by everything they depend on.

From outside: `store` (bytes by key), `entries` (their meaning), `text_rows`, `carried` (a cache on object storage).
"""
