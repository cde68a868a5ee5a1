"""Latents and text embeddings on disk, addressed by everything they depend on.

From outside: `store` (bytes by key), `entries` (what they mean), `text_rows`, `carried` (a cache on object storage).
"""
