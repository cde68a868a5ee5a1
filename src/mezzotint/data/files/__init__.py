"""What lies on disk: folders, archives, columns, texts that belong to samples. No picture is decoded here.

From outside: every file without an underscore.
"""
