"""Support code of the tests: builders of data, models and runs, and helpers for assertions. README.md lists the
modules."""
