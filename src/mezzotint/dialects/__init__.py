"""Foreign recipes → our Recipe. A file here is a dialect: `DIALECT = Dialect(rows=(…))`; every foreign option has one
row."""
