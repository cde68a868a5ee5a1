"""The `optim` of a YAML of MindONE's, with the flags that belong to it: rule, rate, schedule, clipping, average.

There, everything is counted in batches; here in optimizer steps. Numbers are divided by the accumulation and rounded
up, so that the rate reaches the same place after the same pictures.
"""

from __future__ import annotations

from typing import Any

from mezzotint.dialects.base import Draft, dividing
from mezzotint.dialects.mindone_sdxl._targets import OPTIMIZER, SCHEDULER
from mezzotint.dialects.shared.targets import Config, Node, Param, flag_of
from mezzotint.recipe.reading.yaml_rules import Place

OPTIM = {
    "base_learning_rate": Param("number", 1e-6),
    "optimizer_config": Param("object"),
    "scheduler_config": Param("object"),
}
"""The keys of `optim`."""

_CONSTANT = {"kind": "constant", "warmup_steps": 0}


def optim(config: Config, batch_size: int) -> None:
    """Everything of `optim` in the recipe. batch_size: of one card."""
    draft = config.draft
    section = config.section(("optim",), OPTIM)
    _optimizer(config)
    peak = _schedule(config)
    rate, flag = section.values["base_learning_rate"] * peak, flag_of(("optim", "base_learning_rate"))
    if draft.values["scale_lr"]:
        times = draft.launched.processes * batch_size * draft.whole("gradient_accumulation_steps")
        draft.note("scale_lr", f"{rate:g} × {times} = {rate * times:g}")
        rate, flag = rate * times, "scale_lr"
    draft.set("optim.lr", rate, flag)
    draft.lay("gradient_accumulation_steps")
    _clip(draft)
    draft.lay("use_ema")


def _optimizer(config: Config) -> None:
    place = ("optim", "optimizer_config")
    node, draft = config.node(place, OPTIMIZER), config.draft
    if node is None and config.at(place) is not None:
        return
    if node is None or node.name == "SGD":
        _sgd(config, node)
        return
    draft.set("optim.optimizer.kind", "adam-weight-decay", flag_of((*place, "target")))
    betas = [node.values["beta1"], node.values["beta2"]]
    draft.set("optim.optimizer.betas", betas, node.flag("beta1"), node.flag("beta2"))
    draft.set("optim.optimizer.eps", node.values["eps"], node.flag("eps"))
    draft.set("optim.optimizer.weight_decay", node.values["weight_decay"], node.flag("weight_decay"))
    draft.set("optim.optimizer.no_decay", ["@mindone"], flag_of((*place, "target")))
    if node.name == "AdamWeightDecayZeRO1":
        shared(config, place, parameters=False, size=node.values["shard_size"])


def shared(config: Config, place: Place, *, parameters: bool, size: int | None = None) -> None:
    """Several processes share the optimizer's state, or all of the weights, in groups of `size`."""
    draft, flag = config.draft, flag_of((*place, "target"))
    processes = draft.launched.processes
    if processes == 1:
        draft.note(flag, "one process is running, which shares with nobody")
        return
    if size is not None and (size < 1 or processes % size):
        config.refuse((*place, "params", "shard_size"), *dividing(size, processes))
        return
    draft.set("run.runtime", "fsdp", flag)
    draft.set("run.shard.parameters", parameters, flag)
    draft.set("run.shard.group", size, flag)


def _sgd(config: Config, node: Node | None) -> None:
    draft, flag = config.draft, flag_of(("optim", "optimizer_config"))
    draft.set("optim.optimizer.kind", "library", flag)
    draft.set("optim.optimizer.class_name", "torch.optim.SGD", flag)
    if node is None:
        draft.note(flag, "is not given, so plain SGD moves the weights, as there")
        return
    options = {key: node.values[key] for key in ("momentum", "dampening", "nesterov") if key in node.written}
    if options:
        draft.set("optim.optimizer.options", options, flag)
    draft.set("optim.optimizer.weight_decay", node.values["weight_decay"], node.flag("weight_decay"))
    draft.set("optim.optimizer.no_decay", ["@mindone"], flag)


# the rate over the run


def _schedule(config: Config) -> float:
    """Sets the schedule; returns the peak as a multiple of the base rate."""
    place = ("optim", "scheduler_config")
    node, draft = config.node(place, SCHEDULER), config.draft
    peak, schedule = 1.0, dict(_CONSTANT)
    if node is not None:
        peak, schedule = _curve(config, node)
    for key, value in schedule.items():
        draft.set(f"optim.schedule.{key}", value, flag_of((*place, "target") if node else place))
    return peak


def _curve(config: Config, node: Node) -> tuple[float, dict[str, Any]]:
    """(peak, settings of the schedule) of a scheduler."""
    draft, given = config.draft, node.values
    if node.name == "MultiStepLR":
        return 1.0, _milestones(config, node)
    if node.name in ("LambdaLinearScheduler", "LambdaWarmUpCosineScheduler2"):
        return 1.0, _rounds(config, node)
    warmup = given["warm_up_steps"]
    if warmup < 0 or (warmup == 0 and node.name == "LambdaWarmUpScheduler"):
        here = (*node.place, "params", "warm_up_steps")
        config.refuse(here, f"must be above 0, got {warmup}", "leave scheduler_config out for a constant rate", "E1017")
        return 1.0, {}
    steps = draft.in_steps(warmup)
    if steps != warmup:
        draft.note(node.flag("warm_up_steps"), f"{warmup} batches are {steps} steps")
    if node.name == "LambdaWarmUpScheduler":
        return 1.0, {"kind": "constant", "warmup_steps": steps}
    peak, start, floor = given["lr_max"], given["lr_start"], given["lr_min"]
    if peak <= 0 or not 0 <= start <= peak or not 0 <= floor <= peak:
        here = (*node.place, "params", "lr_max")
        config.refuse(here, "lr_start and lr_min must lie between 0 and lr_max, which is above 0", code="E1017")
        return 1.0, {}
    schedule = {"kind": "cosine", "warmup_steps": steps, "warmup_from": start / peak, "floor": floor / peak}
    if given["max_decay_steps"] > 0:
        schedule["decay_steps"] = draft.in_steps(given["max_decay_steps"])
    return peak, schedule


def _milestones(config: Config, node: Node) -> dict[str, Any]:
    steps, gamma = node.values["milestones"] or [], node.values["gamma"]
    here = (*node.place, "params", "milestones")
    if not steps or not all(isinstance(one, int) and one > 0 for one in steps) or sorted(set(steps)) != list(steps):
        config.refuse(here, f"holds rising whole numbers, got {steps}", code="E1017")
        return {}
    at = {config.draft.in_steps(one): gamma ** (index + 1) for index, one in enumerate(steps)}
    return {"kind": "piecewise", "warmup_steps": 0, "points": [[step, factor] for step, factor in at.items()]}


def _rounds(config: Config, node: Node) -> dict[str, Any]:
    """One round for each entry of the lists, which all have one length."""
    keys = ("cycle_lengths", "warm_up_steps", "f_start", "f_max", "f_min")
    lists = [node.values[key] or [] for key in keys]
    here = (*node.place, "params", "cycle_lengths")
    numbers = all(
        isinstance(one, (int, float)) and not isinstance(one, bool) and one >= 0 for ls in lists for one in ls
    )
    if not lists[0] or len({len(one) for one in lists}) != 1 or not numbers:
        config.refuse(here, f"{', '.join(keys)} are lists of numbers of one length", code="E1017")
        return {}
    curve = "linear" if node.name == "LambdaLinearScheduler" else "cosine"
    rounds = [
        {
            "steps": config.draft.in_steps(int(length)),
            "warmup_steps": config.draft.in_steps(int(warmup)),
            "start": start,
            "peak": peak,
            "end": end,
            "curve": curve,
        }
        for length, warmup, start, peak, end in zip(*lists, strict=True)
    ]
    return {"kind": "rounds", "rounds": rounds}


def _clip(draft: Draft) -> None:
    norm = draft.number("max_grad_norm")
    if not draft.values["clip_grad"]:
        draft.set("optim.clip.norm", None, "clip_grad")
        if "max_grad_norm" in draft.named:
            draft.note("max_grad_norm", "without --clip_grad True nothing is clipped")
        return
    if norm <= 0:
        draft.refuse("max_grad_norm", f"must be above 0, got {norm:g}", code="E1017")
        return
    alone = draft.whole("gradient_accumulation_steps") == 1
    draft.set("optim.clip.norm", norm, "max_grad_norm", "clip_grad")
    draft.set("optim.clip.scope", "tensor" if alone else "all", "clip_grad")
    draft.note("clip_grad", "each tensor is clipped on its own" if alone else "all tensors are clipped together")
