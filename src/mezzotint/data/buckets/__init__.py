"""Bucket sizes, and the assignment of images and clips to them.

From outside: `buckets`, `clip_buckets`, `clip_sampling`.
"""
