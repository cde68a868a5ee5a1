"""Mezzotint trains latent-diffusion models. Importing the package imports nothing heavy: `mezzotint --help` answers at
once; see `late` for what its modules import."""

from mezzotint import late

__version__ = "0.1.0"

late.install()
