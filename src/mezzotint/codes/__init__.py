"""The stable codes of what can go wrong, each with what `mezzotint explain CODE` prints.

A file for each page of docs/reference/errors, with `CODES`, by code: a title of one line; behind a line break a
paragraph, only where it has a cause, a remedy or a consequence that the error's own message does not have. Modules of
the group `mezzotint.codes` add those that only they raise. `recipe.reference.error_codes` has them all, which a test
holds against the source. From outside: `SEE_MESSAGE` alone.
"""

SEE_MESSAGE = "The error's message names the place and what to do."
"""What stands in the place of a paragraph."""
