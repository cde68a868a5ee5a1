"""From the schedule to batches: workers that decode, and batches made ready ahead of the step.

From outside: `loader`, `worker`, `prefetch`.
"""
