"""YAML files of `target` and `params`: the line of a mistake, and what is missing."""

from __future__ import annotations

from mindone_yaml import problems, replaced


def test_unknown_class_is_reported_at_the_line_of_its_target() -> None:
    text = replaced("openaimodel.UNetModel", "openaimodel.UNetModle")
    [problem] = problems(text)
    assert "UNetModle" in text.splitlines()[(problem.line or 0) - 1]
    assert problem.where == "model.params.network_config.target in mine.yaml"


def test_invalid_yaml_and_missing_parts_are_reported() -> None:
    assert [p.code for p in problems("model: [")] == ["E1004"]
    assert [(p.where, p.code) for p in problems("data:\n  per_batch_size: 1\n  total_step: 5\n")] == [
        ("model in mine.yaml", "E1017"), ("data.dataset_config in mine.yaml", "E1017"),
    ]  # fmt: skip
    assert {p.code for p in problems(replaced("      target: gm.modules.diffusionmodules.loss.StandardDiffusionLoss\n",
                                              ""))} == {"E1017"}  # fmt: skip
