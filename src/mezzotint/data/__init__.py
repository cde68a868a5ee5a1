"""From files to batches: formats, catalogue, buckets, plan, captions, pictures, cache, loader."""
