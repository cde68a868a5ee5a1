"""How data sets are written down: one file, one format."""
