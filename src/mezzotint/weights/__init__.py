"""Opens and writes model files: model folders, single-file checkpoints, and the weights in them.

From outside: every file.
"""
