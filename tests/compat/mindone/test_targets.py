"""The classes that a YAML of MindONE may name, and what is refused with name and line."""

from __future__ import annotations

import pytest
from mindone_yaml import problems, replaced

from mezzotint.compat.mindone._targets import TARGETS


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("openaimodel.UNetModel", "openaimodel.UNetModle", "E1080", "the nearest denoising network is UNetModel"),
        ("loss.StandardDiffusionLoss", "loss.StandardLoss", "E1080", "the nearest loss is StandardDiffusionLoss"),
        ("mindspore.nn.AdamWeightDecay", "mindspore.nn.Adam", "E1080", "the nearest optimizer is AdamWeightDecay"),
        ("mappers.Rescaler", "mappers.UNetModel", "E1080", "UNetModel is a denoising network; a transform is needed"),
        ("openaimodel.UNetModel", "openaimodel.UNetModel_lora", "E1081", "trains LoRA, which is not supported yet"),
        ("DiffusionEngine", "DiffusionEngineDreamBooth", "E1081", "trains DreamBooth, which is not supported yet"),
        ("DiffusionEngine", "DiffusionEngineControlNet", "E1081", "trains ControlNet, which is not supported yet"),
        ("Text2ImageDataset", "Text2ImageDatasetTextualInversion", "E1081", "trains textual inversion, which is not"),
        ("LegacyDDPMDiscretization", "EDMDiscretization", "E1081", "is a table for sampling"),
        ("FrozenCLIPEmbedder", "FrozenCnCLIPEmbedder", "E1081", "reads Chinese captions"),
        ("use_recompute", "use_recomputation", "E1016", "did you mean use_recompute?"),
        ("beta2: 0.999", "beta2: high", "E1017", "must be a number, got 'high'"),
        ("isfloat: False", "isfloat: True", "E1081", "only False is supported"),
        ("num_idx: 1000", "num_idx: 500", "E1081", "only 1000 is supported: the schedule has 1000 timesteps"),
        ("legacy: False\n        use_recompute", "legacy: True\n        use_recompute", "E1081", "only False is"),
        ("scale_factor: 0.13025", "scale_factor: 0.5", "E1081", "only None or 0.13025 is supported"),
        ("layer_idx: 11", "layer_idx: 10", "E1081", "the last of twelve layers"),
        ("target_size: 1024", "target_size: 512", "E1082", "is 512, but images are resized to 1024; write 1024"),
        ("interpolation: 3", "interpolation: 7", "E1017", "takes 0 to 5, got 7"),
        ("optim:\n", "optimizer:\n  lr: 1\noptim:\n", "E1016", "known sections: data, model, optim, version"),
        ("outdim: 256", "outdim: 128", "E1081", "SDXL needs 256, got 128"),
        ("crop_coords_top_left", "aesthetic_score", "E1081", "in this order"),
    ],
)
def test_unsupported_classes_are_refused_with_their_line(old: str, new: str, code: str, message: str) -> None:
    text = replaced(old, new)
    first, *rest = problems(text)
    assert {problem.code for problem in (first, *rest)} == {code}
    assert message in f"{first.message}; {first.remedy}"
    assert first.where.endswith(" in mine.yaml")
    assert first.line is not None


def test_each_class_has_a_role_or_a_reason() -> None:
    for name, target in TARGETS.items():
        assert target.role, name
        assert not (target.refused and target.params), name
        for key, param in target.params.items():
            assert not param.only or param.about, f"{name}.{key}"
            assert not param.ignored or param.about, f"{name}.{key}"
