"""The verb `prove`."""
