"""The command `queue`: a folder of recipes that are trained one after the other, on each device one at a time.

From outside: `queue`, the command; `entries`, the folder; `running`, which starts the trainings.
"""
