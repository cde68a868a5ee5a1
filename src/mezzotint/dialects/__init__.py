"""Foreign recipes → our Recipe. A file here is a dialect: `DIALECT = Dialect(rows=(…))`; every foreign option has one
row.

From outside: `base`; the dialects are found by listing.
"""
