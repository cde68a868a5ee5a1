"""Files on disk: folders, archives, columns, texts that belong to samples. No image is decoded in this package.

From outside: every file without an underscore.
"""
