"""Changes to the captions and image settings of a data folder, in the files that are there: each one a transaction that
can be undone. No image file is ever written.

From outside: `editor` (a data folder), `operations` (changes of captions), `journal` (what was done, and finishing it).
"""

from __future__ import annotations
