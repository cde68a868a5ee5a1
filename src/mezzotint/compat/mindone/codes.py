"""Error codes of MindONE's files and command lines; see `mezzotint/codes`."""

CODES: dict[str, str] = {
    "E1082": "Image transforms in another trainer's YAML cannot be expressed as settings.\n"
    "Supported are resize, crop to a size, mirror, and scale to [-1, 1].",
    "E1084": "A launch script of another trainer has wrong arguments, or a rank table that does not match them.\n"
    "It becomes one torchrun command for each server, so both must name the same servers and cards.",
    "E1370": "A file of a cache written by MindONE cannot be used.\n"
    "Its latents, texts and vectors are in latent_cache, crossattn_cache and vector_cache, under one name; a vector "
    "ends in six sizes.",
    "E1420": "A MindSpore checkpoint (.ckpt) is damaged.\nNothing was loaded; fetch or save it again.",
}
