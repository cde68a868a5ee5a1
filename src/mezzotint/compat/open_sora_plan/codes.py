"""Codes of what can go wrong with lists of clips, their embeddings and LatteT2V; see `mezzotint/codes`."""

CODES: dict[str, str] = {
    "E1231": "A list of clips is malformed.\n"
    "Each line names a folder and an annotation file, or a folder, a folder of text embeddings and an annotation file, "
    "separated by commas.",
    "E1232": "An annotation file is malformed.\n"
    "It is a JSON list of objects with `path` (below the folder) and `cap` (the caption), and for clips `frame_idx` "
    "(`start:end`) unless they are sampled anywhere.",
    "E1310": "A file of text embeddings that Open-Sora-Plan made (.npz) cannot be used.\n"
    "It does not exist, is damaged, holds pickled objects or other arrays than text_emb and mask, or embeddings of "
    "another length or width than the model takes. `mezzotint cache` makes missing ones.",
    "E1460": "A single LatteT2V file does not say how long its clips are, and has no configuration.",
    "E1461": "No autoencoder was found for a LatteT2V.\n"
    "In Open-Sora-Plan v1.1.0 it is in the folder `vae`, beside those of the denoisers.",
    "E1462": "No text encoder was found for a LatteT2V.\nIt is T5 v1.1 XXL's, which no release of LatteT2V repeats.",
}
