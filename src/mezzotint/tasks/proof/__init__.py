"""What a run was made of, and whether it can be had again: the verbs `verify`, `diff`, `prove`, and the manifest.

From outside: the verbs, and `manifest`.
"""
