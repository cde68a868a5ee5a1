"""The verb `doctor`: what is odd about a data set, and about this machine, each with what to do.

From outside: nothing but the verb, `doctor.run`.
"""
