"""Mezzotint trains latent-diffusion models. Importing the package imports nothing else: `mezzotint --help` answers at
once."""

__version__ = "0.1.0"
