"""The command `doctor`: what is odd about a data set, and about this machine, each with what to do.

From outside: nothing but the command, `doctor.run`.
"""
