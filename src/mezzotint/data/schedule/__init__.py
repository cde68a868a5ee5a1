"""Which samples an epoch visits, in which order and batches, and how each is seen: pure functions of an address.

From outside: every file without an underscore.
"""
