"""How other programs name the tensors of a model in one file. To add one: `layouts/name.py` with `LAYOUT`, a KeyMap."""
