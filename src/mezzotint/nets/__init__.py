"""Networks that diffusers and transformers do not have. One file, one network."""
