"""The verb `verify`, and the manifest of a run that it reads."""
