"""The command `doctor`: problems of a data set or of this machine, with remedies.

From outside: nothing but the command, `doctor.run`.
"""
