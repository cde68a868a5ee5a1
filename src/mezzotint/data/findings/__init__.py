"""Problems and facts of a data set: one list, which `doctor` prints with more of its own, and `check` and the start of
`train` as notes.

From outside: `of_data`, `count_samples`, `as_notes`, and every file without an underscore.
"""

from mezzotint.data.findings.data_set import count_samples as count_samples
from mezzotint.data.findings.data_set import of_data as of_data
from mezzotint.data.findings.finding import as_notes as as_notes
