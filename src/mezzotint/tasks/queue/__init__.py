"""The command `queue`: a folder of recipes that are trained one after the other, on each device one at a time.

`queue.py` is the command, `entries.py` the folder, `adding.py` writes an entry, `running.py` starts the trainings.
"""
