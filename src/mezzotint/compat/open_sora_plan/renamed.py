"""Earlier names of settings that only users of Open-Sora-Plan need; see `settings/renamed.py`."""

SETTINGS = {
    "data.clips.missing": "data.clip_list.missing",
    "data.clips.text_embeddings": "data.clip_list.text_embeddings",
    "data.clips.texts": "data.clip_list.text_embeddings",
    "model.max_tokens": "model.latte.max_tokens",
    "model.text_encoder": "model.latte.text_encoder",
    "objective.variance": "model.latte.variance",
}
VALUES = {
    "data.clips.start": {"open-sora-plan": "not-last"},
    "data.resize": {"open-sora-plan": "square-then-bilinear", "open-sora-plan-port": "bicubic-then-square"},
}
