"""`python -m mezzotint`, and with it `torchrun -m mezzotint` and `accelerate launch -m mezzotint`."""

import sys

from mezzotint.cli import main

if __name__ == "__main__":
    sys.exit(main())
