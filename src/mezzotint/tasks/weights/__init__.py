"""Models and adapters made of others: the verbs `merge`, `extract`, `resize`, and the files that they share."""
