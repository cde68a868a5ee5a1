"""Any subclass of `torch.optim.Optimizer` by its dotted name."""

from __future__ import annotations

import pytest
import torch

from mezzotint.errors import RecipeError
from support.stepping import as_the_class_alone, parameters, resumed_after_three, steps, update_of


def library(name: str, **options: float) -> dict[str, object]:
    return {"kind": "library", "class_name": name, "options": options}


def test_library_class_behaves_as_without_us() -> None:
    as_the_class_alone(library("torch.optim.NAdam", momentum_decay=4e-3), torch.optim.NAdam, momentum_decay=4e-3)
    as_the_class_alone(library("torch.optim.SGD", momentum=0.9), torch.optim.SGD, momentum=0.9)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.Optimizer", "cannot be had"),
        ("torch.nn.Linear", "is no torch.optim.Optimizer"),
        ("torch.optim.NoSuch", "cannot be had"),
    ],
)
def test_class_that_is_no_optimizer_is_named(name: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        update_of(library(name), parameters())


@pytest.mark.parametrize(
    ("name", "lr", "keeps"),
    [
        ("Lion", 1e-3, set()),
        ("Prodigy", 1.0, {"d", "d_max", "d_hat", "d_numerator"}),
        ("DAdaptAdam", 1.0, {"d"}),
        ("DAdaptLion", 1.0, {"d"}),
        ("DAdaptSGD", 1.0, {"d"}),
    ],
)
def test_optimizers_of_the_extra_resume_bit_exactly(name: str, lr: float, keeps: set[str]) -> None:
    pytest.importorskip("pytorch_optimizer")
    optimizer = library(f"pytorch_optimizer.{name}")
    resumed_after_three(optimizer, lr=lr, downhill=True)
    trained = parameters()
    update = update_of(optimizer, trained)
    steps(update, trained, range(3), lr=lr, downhill=True)
    assert keeps <= {
        flat.split("/")[0].removeprefix("opt.group.").split("#")[0] for flat in update.tensors() if "opt.group." in flat
    }
