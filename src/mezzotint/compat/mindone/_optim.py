"""The section `optim` of MindONE's YAML files, with its flags: optimizer, rate, schedule, clipping, average.

MindONE counts batches, Mezzotint optimizer steps. Counts are divided by the accumulation and rounded up, so that the
rate is the same after the same number of images.
"""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.derived import explain_divisor
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.mindone._config import Config, Node, params

OPTIM = params(base_learning_rate=1e-6, optimizer_config=dict, scheduler_config=dict)
"""The keys of `optim`."""


def optim(config: Config, batch_size: int) -> None:
    """Sets the section `optim` of the recipe. batch_size: of one card."""
    draft = config.draft
    section = config.section(("optim",), OPTIM)
    _set_optimizer(config, section)
    peak = _set_schedule(config, section)
    rate, flag = section["base_learning_rate"] * peak, section.flag("base_learning_rate")
    if draft.values["scale_lr"]:
        times = draft.launched.processes * batch_size * draft.integer("gradient_accumulation_steps")
        draft.note("scale_lr", f"{rate:g} × {times} = {rate * times:g}")
        rate, flag = rate * times, "scale_lr"
    draft.set("optim.lr", rate, flag)
    draft.apply("gradient_accumulation_steps")
    _set_clipping(draft)
    draft.apply("use_ema")


def _set_optimizer(config: Config, section: Node) -> None:
    node, draft, flag = config.node((*section.key_path, "optimizer_config"), "optimizer"), config.draft, section.flag
    if node is None and section["optimizer_config"] is not None:
        return
    if node is None or node.name == "SGD":
        values = {"optim.optimizer.kind": "library", "optim.optimizer.class_name": "torch.optim.SGD"}
        draft.set_all(values, flag("optimizer_config"))
    if node is None:
        draft.note(flag("optimizer_config"), "is not given; plain SGD is used, as in MindONE")
    elif node.name == "SGD":
        options = {key: node[key] for key in ("momentum", "dampening", "nesterov") if key in node.written}
        if options:
            draft.set("optim.optimizer.options", options, flag("optimizer_config"))
        node.copy("optim.optimizer.weight_decay", "weight_decay")
        draft.set("optim.optimizer.no_decay", ["@mindone"], flag("optimizer_config"))
    else:
        draft.set("optim.optimizer.kind", "adam-weight-decay", node.flag())
        draft.set("optim.optimizer.betas", [node["beta1"], node["beta2"]], node.flag("beta1"), node.flag("beta2"))
        node.copy("optim.optimizer.eps", "eps")
        node.copy("optim.optimizer.weight_decay", "weight_decay")
        draft.set("optim.optimizer.no_decay", ["@mindone"], node.flag())
        if node.name == "AdamWeightDecayZeRO1":
            set_sharding(node, parameters=False, size=node["shard_size"])


def set_sharding(node: Node, *, parameters: bool, size: int | None = None) -> None:
    """Sets sharding of the optimizer's state, or also of the weights, in groups of `size`. node: the origin of the
    setting."""
    draft = node.config.draft
    processes = draft.launched.processes
    if processes == 1:
        draft.note(node.flag(), "there is only one process, so nothing is sharded")
    elif size is not None and (size < 1 or processes % size):
        node.refuse("shard_size", *explain_divisor(size, processes))
    else:
        values = {"run.runtime": "fsdp", "run.shard.parameters": parameters, "run.shard.group": size}
        draft.set_all(values, node.flag())


# the schedule


def _set_schedule(config: Config, section: Node) -> float:
    """Sets the schedule; returns the peak as a multiple of the base rate."""
    node = config.node((*section.key_path, "scheduler_config"), "scheduler")
    peak, schedule = _read_schedule(node) if node else (1.0, {"kind": "constant", "warmup_steps": 0})
    flag = node.flag() if node else section.flag("scheduler_config")
    config.draft.set_all({f"optim.schedule.{key}": value for key, value in schedule.items()}, flag)
    return peak


def _read_schedule(node: Node) -> tuple[float, dict[str, Any]]:
    """(peak, settings of the schedule) of a scheduler."""
    if node.name == "MultiStepLR":
        return 1.0, _milestones(node)
    if node.name in ("LambdaLinearScheduler", "LambdaWarmUpCosineScheduler2"):
        return 1.0, _rounds(node)
    draft, warmup = node.config.draft, node["warm_up_steps"]
    if warmup < 0 or (warmup == 0 and node.name == "LambdaWarmUpScheduler"):
        remedy = "leave scheduler_config out for a constant rate"
        node.refuse("warm_up_steps", f"must be above 0, got {warmup}", remedy, "E1017")
        return 1.0, {}
    steps = draft.to_steps(warmup)
    if steps != warmup:
        draft.note(node.flag("warm_up_steps"), f"{warmup} batches are {steps} steps")
    if node.name == "LambdaWarmUpScheduler":
        return 1.0, {"kind": "constant", "warmup_steps": steps}
    peak, start, floor = node["lr_max"], node["lr_start"], node["lr_min"]
    if peak <= 0 or not 0 <= start <= peak or not 0 <= floor <= peak:
        message = "lr_start and lr_min must be between 0 and lr_max, which must be above 0"
        node.refuse("lr_max", message, code="E1017")
        return 1.0, {}
    schedule = {"kind": "cosine", "warmup_steps": steps, "warmup_from": start / peak, "floor": floor / peak}
    if node["max_decay_steps"] > 0:
        schedule["decay_steps"] = draft.to_steps(node["max_decay_steps"])
    return peak, schedule


def _milestones(node: Node) -> dict[str, Any]:
    steps, gamma = node["milestones"] or [], node["gamma"]
    if not steps or not all(isinstance(one, int) and one > 0 for one in steps) or sorted(set(steps)) != list(steps):
        node.refuse("milestones", f"must be increasing integers, got {steps}", code="E1017")
        return {}
    at = {node.config.draft.to_steps(one): gamma ** (index + 1) for index, one in enumerate(steps)}
    return {"kind": "piecewise", "warmup_steps": 0, "points": [[step, factor] for step, factor in at.items()]}


def _rounds(node: Node) -> dict[str, Any]:
    """One round for each entry of the lists, which have the same length."""
    keys = ("cycle_lengths", "warm_up_steps", "f_start", "f_max", "f_min")
    lists = [node[key] or [] for key in keys]
    numbers = [one for entries in lists for one in entries]
    are_numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) and one >= 0 for one in numbers)
    if not lists[0] or len({len(one) for one in lists}) != 1 or not are_numbers:
        node.refuse("cycle_lengths", f"{', '.join(keys)} must be lists of numbers of the same length", code="E1017")
        return {}
    curve, in_steps = "linear" if node.name == "LambdaLinearScheduler" else "cosine", node.config.draft.to_steps
    rounds = [
        {"steps": in_steps(int(length)), "warmup_steps": in_steps(int(warmup)), **factors, "curve": curve}
        for length, warmup, *rest in zip(*lists, strict=True)
        for factors in [dict(zip(("start", "peak", "end"), rest, strict=True))]
    ]
    return {"kind": "rounds", "rounds": rounds}


def _set_clipping(draft: Draft) -> None:
    norm = draft.number("max_grad_norm")
    if not draft.values["clip_grad"]:
        draft.set("optim.clip.norm", None, "clip_grad")
        if "max_grad_norm" in draft.named:
            draft.note("max_grad_norm", "without --clip_grad True nothing is clipped")
    elif norm <= 0:
        draft.refuse("max_grad_norm", f"must be above 0, got {norm:g}", code="E1017")
    else:
        is_single = draft.integer("gradient_accumulation_steps") == 1
        draft.set("optim.clip.norm", norm, "max_grad_norm", "clip_grad")
        draft.set("optim.clip.scope", "tensor" if is_single else "all", "clip_grad")
        draft.note(
            "clip_grad", "each tensor is clipped separately" if is_single else "all tensors are clipped together"
        )
