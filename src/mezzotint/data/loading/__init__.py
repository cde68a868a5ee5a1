"""From the schedule to batches: decoding workers, and prefetching.

From outside: `loader`, `worker`, `prefetch`.
"""
