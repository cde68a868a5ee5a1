"""Bucket sizes, and the bucket of each image or clip.

From outside: `buckets`, `clip_buckets`, `clip_sampling`, `own_sizes`.
"""
