"""Which samples an epoch visits, in which order and batches, and with which placement: pure functions of an address.

From outside: every file without an underscore.
"""
