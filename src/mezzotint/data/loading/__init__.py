"""From the schedule to batches: workers that decode, and prefetching.

From outside: `loader`, `worker`, `reading`, `prefetch`.
"""
