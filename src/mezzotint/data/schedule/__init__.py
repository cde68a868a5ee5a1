"""The samples of an epoch, their order, batches, crops and captions: pure functions of an address.

From outside: every file without an underscore.
"""
