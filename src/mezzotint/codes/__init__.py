"""Stable error codes, each with the text that `mezzotint explain CODE` prints.

One file for each page of docs/reference/errors, with `CODES` by code: a title of one line; after a line break a
paragraph, only if it has a cause, a remedy or a consequence that the error's message does not contain. Modules of the
group `mezzotint.codes` add the codes that only they raise. `settings.reference.error_codes` has all of them, which a
test compares with the source. From outside: only `SEE_MESSAGE`.
"""

SEE_MESSAGE = "The error's message names the setting or file, and what to do."
"""Printed for codes without a paragraph."""
