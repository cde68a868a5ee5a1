"""From files to batches, a folder for each story: files, media, formats, buckets, catalogue, schedule, cache, loading.

From outside: see the `__init__` of each subfolder.
"""
