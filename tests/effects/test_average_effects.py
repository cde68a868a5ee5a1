"""Rows of optimizers that average their weights, of stochastic rounding, and of the factors of an adapter by chance or
at another rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.adapters import files
from mezzotint.adapters.names import LayerNames
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.training.callbacks.previews import Previews
from mezzotint.training.callbacks.validation import Validation
from mezzotint.training.update import Update
from support.messages import refusal
from support.rounding import within

Prepare = Callable[..., Any]
LORA = {"model__adapter__kind": "lora", "model__adapter__rank": 4, "model__adapter__targets": "[attention]"}
QUERY = "denoiser/mid_block.attentions.0.transformer_blocks.0.attn1.to_q"
PLAIN = {"optim__clip__norm": "null", "optim__ema__rule": "none", "optim__optimizer__weight_decay": 0}
FREE = {"optim__optimizer__kind": "schedule-free-adamw", "optim__lr": 0.05}


# breaks if previews, validation or exports use the trained weights of an optimizer that averages them, or change them
@pytest.mark.effect("optim.optimizer.kind")
@pytest.mark.parametrize(
    "optimizer", [{"kind": "schedule-free-adamw"}, {"kind": "library", "class_name": "support.averaging.Averaging"}]
)
def test_evaluation_uses_the_average_of_the_weights(prepare: Prepare, optimizer: dict[str, Any]) -> None:
    packages = ["--allow-package", "support"] if "class_name" in optimizer else []
    short = {"run__preview__every": 1, "run__validation__every": 1, "data__holdout__fraction": 0.3, "sample__steps": 1}
    settings = {f"optim__optimizer__{name}": value for name, value in optimizer.items()}
    ready = prepare(*packages, **LORA, **short, **settings, optim__ema__rule="none", optim__lr=0.05, run__name="free")
    for _ in range(3):
        ready.step()
    update, name = ready.trainer.model.update, f"{QUERY}.lora_up.weight"
    before, average = {n: t.clone() for n, t in update.tensors().items()}, update.evaluation_weights()
    assert not torch.equal(average[name], update.masters[name])
    seen: list[Tensor] = []
    parameter = ready.trainer.model.trained[name]
    hook = ready.family.parts()["denoiser"].register_forward_pre_hook(lambda *_: seen.append(parameter.clone()))
    for callback in ready.trainer.callbacks:
        if isinstance(callback, (Previews, Validation)):
            assert not seen
            callback.on_step(None, ready.trainer.progress)
            assert seen
            assert all(torch.equal(used, average[name]) for used in seen)
            seen.clear()
    hook.remove()
    (folder,) = ready.job.host.write_exports(ready.trainer)
    written = files.read(folder / "free.safetensors", LayerNames(ready.trainer.model.files.trainable_shapes()))
    up = next(m.tensors["lora_up.weight"] for layer, m in written.modules.items() if QUERY.endswith(f"/{layer.path}"))
    within(up.reshape(average[name].shape), average[name].to(up.dtype), roundings=1, of="each")
    assert update.tensors().keys() == before.keys()
    assert all(torch.equal(tensor, before[n]) for n, tensor in update.tensors().items())


def averaged(rates: tuple[float, ...] = (0.1,) * 4, **options: Any) -> tuple[list[float], float]:
    """z after each step under a gradient of 1, which moves it by the rate, and x after the last."""
    trained, z = {"denoiser/a": torch.nn.Parameter(torch.zeros(1))}, []
    optimizer = {"kind": "schedule-free-adamw", "weight_decay": 0.0, "betas": (0.9, 0.0)} | options
    update = Update(trained, OptimSettings(optimizer=optimizer, clip={"norm": None}), separate_masters=False)
    one = torch.tensor(1.0)
    for rate in rates:
        trained["denoiser/a"].grad = torch.ones(1)
        update.apply(loss_scale=one, norms=one[None], found_inf=0 * one, lr={"denoiser": rate}, update_ema=False)
        z.append(float(update.tensors()["opt.z/denoiser/a"]))
    return z, float(update.evaluation_weights()["denoiser/a"])


# breaks if the rate does not rise by 1/warmup_steps from the first step on
@pytest.mark.effect("optim.optimizer.warmup_steps")
def test_warmup_steps_of_schedule_free_adamw_raise_the_rate() -> None:
    assert averaged(warmup_steps=4)[0] == pytest.approx([-0.025, -0.075, -0.15, -0.25])


# breaks if later steps do not weigh more in the average
@pytest.mark.effect("optim.optimizer.r")
def test_r_weighs_later_steps_more() -> None:
    assert averaged()[1] == pytest.approx(-0.1 * (1 + 2 + 3 + 4) / 4)
    assert averaged(r=2.0)[1] == pytest.approx(-0.1 * (1 + 4 * 2 + 9 * 3 + 16 * 4) / (1 + 4 + 9 + 16))


# breaks if the highest rate so far does not weigh a step, with this power
@pytest.mark.effect("optim.optimizer.weight_lr_power")
def test_weight_lr_power_weighs_steps_by_their_rate() -> None:
    for power in (0.0, 1.0, 2.0):
        z, x = averaged((0.1, 0.2, 0.1), weight_lr_power=power)
        first = 0.5**power
        assert z == pytest.approx([-0.1, -0.3, -0.4])
        assert x == pytest.approx(-(0.1 * first + 0.3 + 0.4) / (first + 2))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["optim.schedule.kind=cosine"], "set optim.schedule.kind=constant"),
        (["optim.optimizer.warmup_steps=3", "optim.schedule.warmup_steps=3"], "leave one of them out"),
        (["model.adapter={kind: lora, max_norm: 1}"], "model.adapter.max_norm bounds trained weights"),
        (["optim.optimizer.betas=[0, 0.9]"], "greater than 0"),
    ],
)
def test_schedule_free_adamw_refuses_what_contradicts_it(words: list[str], sentence: str) -> None:
    kind = "optim.optimizer.kind=schedule-free-adamw"
    fits = (kind, "optim.schedule.warmup_steps=3", "run.runtime=fsdp", "optim.ema.rule=constant")
    assert read_text("schema: 1", overrides=[*fits]).recipe.optim.optimizer.has_evaluation_weights
    assert sentence in refusal(kind, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["optim.schedule.kind=cosine"], "prodigyplus.ProdigyPlusScheduleFree averages its weights"),
        (["run.precision=bf16", "run.weight_dtype=pure"], "set optim.optimizer.options={stochastic_rounding: false}"),
        (["run.runtime=fsdp"], "needs whole tensors"),
        (["optim.in_backward=true", "optim.clip.norm=null"], "updates all weights together"),
    ],
)
def test_classes_of_libraries_refuse_what_contradicts_them(words: list[str], sentence: str) -> None:
    name = "optim.optimizer={kind: library, class_name: prodigyplus.ProdigyPlusScheduleFree}"
    assert sentence in refusal(name, *words)
    plain = name.replace("}", ", options: {use_schedulefree: false}}")
    assert read_text("schema: 1", overrides=[plain, "optim.schedule.kind=cosine"]).recipe.optim.lr


# breaks if weights without masters are rounded to the nearest number, or if draws depend on earlier ones
@pytest.mark.effect("optim.stochastic_rounding")
def test_stochastic_rounding_moves_weights_by_less_than_their_last_bit(prepare: Prepare) -> None:
    pure = PLAIN | {"run__precision": "bf16", "run__weight_dtype": "pure", "optim__lr": 1e-5}

    def after(**settings: Any) -> dict[str, Tensor]:
        ready = prepare(**pure, **settings)
        return [ready.step() for _ in range(2)][-1].after

    nearest, once = after(), after(optim__stochastic_rounding=True)
    torch.rand(7)
    again = after(optim__stochastic_rounding=True)
    assert all(torch.equal(once[name], weight) for name, weight in again.items())
    start = prepare(**pure).trainer.model.update.masters
    large = [name for name, weight in start.items() if weight.ndim > 1]
    moved = [sum(int((end[n] != start[n]).sum()) for n in large) for end in (nearest, once)]
    assert moved[1] > 2 * moved[0]
    assert {weight.dtype for weight in once.values()} == {torch.bfloat16}
    words = ("optim.stochastic_rounding=true", "run.precision=bf16")
    assert "set run.precision=bf16 and run.weight_dtype=pure" in refusal(*words)
    library = "optim.optimizer={kind: library, class_name: torch.optim.NAdam}"
    assert "torch.optim.NAdam changes weights itself" in refusal(*words, "run.weight_dtype=pure", library)


# breaks if both factors have the same rate, or the reported rates do not show it
@pytest.mark.effect("model.adapter.b_lr_ratio")
def test_b_lr_ratio_multiplies_the_rate_of_the_second_factor(prepare: Prepare) -> None:
    rates = {"denoiser/mid_block.*": 2e-3}
    step = prepare(**LORA, **PLAIN, model__adapter__b_lr_ratio=16, optim__lr=1e-3, optim__part_lr=rates).step()
    for name in step.after:
        rate = 2e-3 if name.startswith("denoiser/mid_block.") else 1e-3
        rate *= 16 if name.endswith("lora_up.weight") else 1
        direction = step.grads[name] / (step.grads[name].abs() + 1e-8)
        torch.testing.assert_close(step.moved(name), -rate * direction, rtol=1e-3, atol=1e-6)
    assert step.report.rates == {
        "denoiser": 1e-3, "denoiser.x16": 16e-3, "denoiser/mid_block.*": 2e-3, "denoiser/mid_block.*.x16": 32e-3,
    }  # fmt: skip


# breaks if nothing is left out, the rest is not scaled, or draws depend on earlier ones or on how a batch is split
@pytest.mark.effect("model.adapter.rank_dropout", "model.adapter.module_dropout")
@pytest.mark.parametrize("name", ["rank_dropout", "module_dropout"])
def test_ranks_and_modules_are_left_out_by_chance(prepare: Prepare, name: str) -> None:
    def gradients(**settings: Any) -> dict[str, Tensor]:
        adapter = {"model__adapter__targets": "all", "model__adapter__init": "gaussian"}
        return dict(prepare(**LORA | adapter | settings).step().grads)

    setting = f"model__adapter__{name}"
    plain, dropped, always = gradients(), gradients(**{setting: 0.5}), gradients(**{setting: 0.9999})
    ups = [leaf for leaf in plain if leaf.endswith("lora_up.weight") and bool(plain[leaf].any())]
    assert ups
    assert sum(not torch.equal(plain[leaf], dropped[leaf]) for leaf in ups) > len(ups) / 2
    assert not any(bool(gradient.any()) for leaf, gradient in always.items() if leaf in ups)
    torch.rand(7)
    again = gradients(**{setting: 0.5}, run__micro_batch=1, run__gradient_checkpointing__enabled=True)
    for leaf, gradient in dropped.items():
        within(again[leaf], gradient, roundings=256)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{kind: dora, rank_dropout: 0.1}", "rank_dropout is for lora and rslora, not for dora"),
        ("{kind: lokr, module_dropout: 0.1}", "module_dropout is for lora and rslora, not for lokr"),
        ("{kind: loha, b_lr_ratio: 16}", "b_lr_ratio is for lora, rslora and dora, not for loha"),
        ("{b_lr_ratio: 16}", "model.adapter.kind is none"),
    ],
)
def test_factors_of_other_adapters_are_not_left_out(text: str, sentence: str) -> None:
    assert sentence in refusal(f"model.adapter={text}")
