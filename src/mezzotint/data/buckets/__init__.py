"""Which sizes are trained, and which of them a picture or a clip falls into.

From outside: `buckets`, `clip_buckets`, `clip_sampling`.
"""
