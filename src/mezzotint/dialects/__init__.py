"""Foreign recipes → our Recipe. A file here is a dialect: `DIALECT = Dialect(rows=(…))`. None is installed yet."""
