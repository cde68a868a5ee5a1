"""From files to batches, a folder for each story: files, media, formats, buckets, catalogue, schedule, cache, loading.

From outside: nothing of this name itself; each folder says what may be imported from it.
"""
