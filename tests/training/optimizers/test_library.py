"""Any subclass of `torch.optim.Optimizer` by its dotted name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from mezzotint.errors import RecipeError
from mezzotint.settings.optimizers.library import Library
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.update import evaluation_weights_of
from support.stepping import (
    as_the_class_alone,
    give_gradients,
    kept,
    parameters,
    resumed_after_three,
    same,
    steps,
    update_of,
)


def library(name: str, **options: Any) -> dict[str, Any]:
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


OF_SEVERAL_SHAPES = {"denoiser/a.weight": (40, 36), "denoiser/a.bias": (6,), "denoiser/c.weight": (4, 3, 3, 3)}


def test_class_with_train_and_eval_has_evaluation_weights() -> None:
    optimizer = library("support.averaging.Averaging")
    resumed_after_three(optimizer)
    trained, means = parameters(), dict.fromkeys(parameters(), 0.0)
    update = update_of(optimizer, trained)
    assert all(torch.equal(weight, trained[name]) for name, weight in update.evaluation_weights().items())
    for seed in range(3):
        steps(update, trained, range(seed, seed + 1))
        means = {name: mean + trained[name].detach() / 3 for name, mean in means.items()}
        before = kept(update)
        weights = update.evaluation_weights()
        assert same(before, update.tensors()), "eval() exchanges tensors in place, of copies"
    for name, weight in weights.items():
        torch.testing.assert_close(weight, means[name])
    again = update_of(optimizer, parameters())
    again.load(before)
    of_checkpoint = evaluation_weights_of(before, OptimSettings(optimizer=optimizer))
    for name, weight in weights.items():
        assert torch.equal(again.evaluation_weights()[name], weight), "before the first step after a resume"
        assert torch.equal(of_checkpoint[name], weight)


def test_muon_gets_matrices_and_adamw_the_other_weights() -> None:
    optimizer = library("torch.optim.Muon", adjust_lr_fn="match_rms_adamw") | {"weight_decay": 0.1}
    trained, alone = parameters(OF_SEVERAL_SHAPES), parameters(OF_SEVERAL_SHAPES)
    update = update_of(optimizer, trained)
    steps(update, trained, range(4))
    shared = {"lr": 1e-2, "weight_decay": 0.1}
    muon = torch.optim.Muon([alone["denoiser/a.weight"]], adjust_lr_fn="match_rms_adamw", **shared)
    adamw = torch.optim.AdamW([p for p in alone.values() if p.ndim != 2], **shared)
    for seed in range(4):
        give_gradients(alone, seed)
        muon.step()
        adamw.step()
    for name, p in trained.items():
        torch.testing.assert_close(p, alone[name], rtol=1e-5, atol=1e-6)
    stored = sum(t.nbytes for n, t in update.tensors().items() if n.startswith("opt.") and n != "opt.applied")
    assert update.state_bytes() == stored
    again = parameters(OF_SEVERAL_SHAPES)
    resumed = update_of(optimizer, again)
    resumed.load(kept(update))
    steps(resumed, again, range(4, 6))
    steps(update, trained, range(4, 6))
    assert same(resumed.tensors(), update.tensors())


@pytest.mark.parametrize(
    ("name", "lr", "options"),
    [
        ("schedulefree.AdamWScheduleFree", 1e-2, {"warmup_steps": 3}),
        ("schedulefree.RAdamScheduleFree", 1e-2, {}),
        ("schedulefree.SGDScheduleFree", 1e-2, {}),
        ("prodigyplus.ProdigyPlusScheduleFree", 1.0, {}),
        ("prodigyplus.ProdigyPlusScheduleFree", 1.0, {"use_speed": True}),
        ("pytorch_optimizer.ScheduleFreeAdamW", 1e-2, {}),
        ("pytorch_optimizer.CAME", 1e-3, {}),
        ("pytorch_optimizer.AdEMAMix", 1e-3, {}),
    ],
)
def test_known_classes_are_the_packages_and_resume_bit_exactly(name: str, lr: float, options: dict[str, Any]) -> None:
    package = pytest.importorskip(name.partition(".")[0])
    kind, optimizer = getattr(package, name.partition(".")[2]), library(name, **options)
    trained, alone = parameters(OF_SEVERAL_SHAPES), parameters(OF_SEVERAL_SHAPES)
    update = update_of(optimizer, trained)
    steps(update, trained, range(6), lr=lr, downhill=True)
    reference = kind(list(alone.values()), lr=lr, weight_decay=0.0, **options)
    for switch in ("train", "eval"):
        getattr(reference, switch, lambda: None)()
        for seed in range(6) if switch == "train" else ():
            give_gradients(alone, seed, downhill=True)
            reference.step()
    weights = update.evaluation_weights()
    for weight_name, p in alone.items():
        torch.testing.assert_close(weights[weight_name], p.detach(), rtol=1e-6, atol=1e-7)
    assert Library(**optimizer).has_evaluation_weights == (weights is not update.masters)
    stored = {n: t for n, t in update.tensors().items() if n.startswith("opt.") and not n.startswith("opt.group.")}
    assert update.state_bytes() == sum(t.nbytes for n, t in stored.items() if n != "opt.applied")
    resumed_after_three(optimizer, lr=lr, downhill=True)


def test_eight_bit_classes_of_bitsandbytes_are_counted_by_their_moments() -> None:
    names = ("AdEMAMix8bit", "Lion8bit", "PagedLion8bit", "AdamW8bit")
    counts = [Library(class_name=f"bitsandbytes.optim.{name}", kind="library").facts.quantized for name in names]
    assert counts == [3, 1, 1, 2]


@pytest.mark.parametrize(
    ("name", "expected"), [("Lion8bit", 308), ("PagedAdamW32bit", 2400), ("Lion", 1200), ("AdEMAMix", 3600)]
)
def test_bytes_of_bitsandbytes_moments(monkeypatch: pytest.MonkeyPatch, name: str, expected: int) -> None:
    for module in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(sys.modules, module, stand_ins := ModuleType(module))
    vars(stand_ins)[name] = type(name, (torch.optim.AdamW,), {"__module__": "bitsandbytes.optim.adamw"})
    update = update_of(library(f"bitsandbytes.optim.{name}"), parameters({"denoiser/a": (300,)}))
    assert update.state_bytes() == expected
