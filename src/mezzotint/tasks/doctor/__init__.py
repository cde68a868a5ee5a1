"""The command `doctor`: findings about a data set or this machine, each with advice.

From outside: nothing but the command, `doctor.run`.
"""
