"""From files to batches, a folder for each story: files, media, formats, buckets, catalogue, schedule, cache, loading.

Nothing here is imported as `mezzotint.data` itself; each folder says what may be imported from it.
"""
