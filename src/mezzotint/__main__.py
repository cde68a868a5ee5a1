"""`python -m mezzotint`, and with it `torchrun -m mezzotint` and `accelerate launch -m mezzotint`.

`python -m` looks for modules in the current folder first. Files there are data, never programs: the folder is removed
from the path before anything else is imported.
"""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from mezzotint.cli import main

if __name__ == "__main__":
    sys.exit(main())
