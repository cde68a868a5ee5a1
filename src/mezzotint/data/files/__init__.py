"""Files on disk: folders, archives, columns, texts that belong to samples. No image is decoded here.

From outside: every file without an underscore.
"""
