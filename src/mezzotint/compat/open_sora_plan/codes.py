"""Error codes of lists of clips, their embeddings and LatteT2V; see `mezzotint/codes`."""

CODES: dict[str, str] = {
    "E1231": "A list of clips is malformed.\n"
    "Each line names a folder and an annotation file, or a folder, a folder of text embeddings and an annotation file, "
    "separated by commas.",
    "E1232": "An annotation file is malformed.\n"
    "It must be a JSON list of objects with `path` (inside the folder) and `cap` (the caption), and for clips "
    "`frame_idx` (`start:end`) unless clips may start anywhere.",
    "E1310": "A file of Open-Sora-Plan's text embeddings (.npz) cannot be used.\n"
    "It does not exist, is damaged, contains pickled objects or other arrays than text_emb and mask, or embeddings of "
    "another length or width than the model's. `mezzotint cache` writes missing ones.",
    "E1460": "A single LatteT2V file has no configuration with the length of its clips.",
    "E1461": "No autoencoder was found for a LatteT2V.\n"
    "In Open-Sora-Plan v1.1.0 it is in the folder `vae`, next to those of the denoisers.",
    "E1462": "No text encoder was found for a LatteT2V.\n"
    "It is that of T5 v1.1 XXL, which no release of LatteT2V contains.",
}
