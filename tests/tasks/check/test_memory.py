"""The memory estimate, compared with real forward passes, updates and runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from mezzotint.diffusion.objective import Objective
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.families.flux2 import Family as Flux2
from mezzotint.families.sd import Family
from mezzotint.families.shared import folder_family
from mezzotint.runtimes.base import Launch, recompute_blocks
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.stages import Condition, Noised
from mezzotint.tasks import assemble
from mezzotint.tasks.check.memory import memory_of
from mezzotint.tasks.check.meta_model import Activations, MetaModel
from mezzotint.tasks.resolving import resolve
from mezzotint.training.loop import RunHost, Trainer
from mezzotint.training.precision import attention
from mezzotint.training.precision.attention import use_attention
from mezzotint.training.precision.policy import Precision
from mezzotint.training.progress import Progress
from mezzotint.training.trainable import select_trained_parameters
from mezzotint.weights.folder.model_folder import shipped_folder
from support.model_export import export_model, tiny_model
from support.trainers import batch_of, step_batches

EMA_COUNT = "opt.shadow_updates"
SQUARE, WIDE, TALL = Size(64, 64), Size(128, 64), Size(64, 128)
UNET_15 = {
    "_class_name": "UNet2DConditionModel", "act_fn": "silu", "attention_head_dim": 8,
    "block_out_channels": [320, 640, 1280, 1280], "center_input_sample": False, "cross_attention_dim": 768,
    "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"], "downsample_padding": 1,
    "flip_sin_to_cos": True, "freq_shift": 0, "in_channels": 4, "layers_per_block": 2, "mid_block_scale_factor": 1,
    "norm_eps": 1e-05, "norm_num_groups": 32, "out_channels": 4, "sample_size": 64,
    "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
}  # fmt: skip
VAE_15 = {
    "_class_name": "AutoencoderKL", "act_fn": "silu", "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4, "in_channels": 3, "latent_channels": 4, "layers_per_block": 2,
    "norm_num_groups": 32, "out_channels": 3, "sample_size": 512, "up_block_types": ["UpDecoderBlock2D"] * 4,
}  # fmt: skip
TEXT_15 = {
    "architectures": ["CLIPTextModel"], "attention_dropout": 0.0, "bos_token_id": 0, "dropout": 0.0, "eos_token_id": 2,
    "hidden_act": "quick_gelu", "hidden_size": 768, "initializer_factor": 1.0, "initializer_range": 0.02,
    "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 77, "model_type": "clip_text_model",
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1, "projection_dim": 768, "vocab_size": 49408,
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`Family.tiny()` as a folder of files."""
    return export_model(tiny_model(Family), tmp_path_factory.mktemp("models") / "tiny")


def recipe(model: Path, **changes: Any) -> Recipe:
    """`recipe(path, run__precision="bf16")`."""
    tree: dict[str, Any] = {"model": {"path": str(model)}}
    for path, value in changes.items():
        place = tree
        *sections, last = path.split("__")
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return Recipe.model_validate(tree)


def really_kept(settings: Recipe, size: Size, samples: int) -> int:
    """Bytes that autograd keeps of a real forward pass on the CPU, without parameters."""
    family = Family.of(settings.model)
    precision = Precision.of(settings.run)
    for name, module in family.parts().items():
        module.to(dtype=precision.weights if name in settings.model.train else precision.frozen)
    select_trained_parameters(family.parts(), settings.model, Family.spec.trainable)
    attention.set_up(family.parts()["denoiser"], settings.model.attention)
    if settings.run.gradient_checkpointing.enabled:
        recompute_blocks(family.blocks(), settings.run.gradient_checkpointing)
    own = {t.untyped_storage().data_ptr() for m in family.parts().values() for t in (*m.parameters(), *m.buffers())}
    saved: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage
        return tensor

    captions = [""] * samples
    x = torch.randn(samples, 4, size.height // 8, size.width // 8)
    t = torch.zeros(samples, dtype=torch.int64)
    noised = Noised(x, torch.randn_like(x), x, x, t, t.float())
    text = None
    if "text_encoder" not in settings.model.train:
        with torch.no_grad():
            text = family.encode_text(captions)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with use_attention(settings.model.attention, torch.device("cpu")), precision.autocast(torch.device("cpu")):
            predicted = family.predict(noised, family.condition(text or family.encode_text(captions), None))
        loss = Objective(settings.objective, family.schedule, "epsilon").loss(predicted, noised, torch.ones(samples))
        total = loss.total
    assert total.requires_grad
    return sum(storage.nbytes() for storage in saved.values())


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model__train": ["denoiser", "text_encoder"]},
        {"model__attention": "math"},
        {"model__attention": "slice"},
        pytest.param({"model__freeze": ["denoiser/down_blocks.*"]}, marks=pytest.mark.slow),
        {"run__gradient_checkpointing": {"enabled": True}},
        pytest.param({"run__gradient_checkpointing": {"enabled": True, "skip_first": 3}}, marks=pytest.mark.slow),
    ],
    ids=[
        "plain",
        "with text encoder",
        "plain attention",
        "sliced attention",
        "partly frozen",
        "recomputed",
        "partly recomputed",
    ],
)  # fmt: skip
def test_activations_match_a_real_forward_pass(tiny: Path, changes: dict[str, Any]) -> None:
    settings = recipe(tiny, **changes)
    assert MetaModel(settings).activations(WIDE, 3).kept == really_kept(settings, WIDE, 3)


def test_references_of_their_own_shape_count_as_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a square of 64 pixels, one of up to 2 to 1 in multiples of 16 has up to 80 × 64."""
    seen = []
    predict = Flux2.predict

    def watched(self: Flux2, noised: Noised, condition: Condition) -> Tensor:
        seen.append({name: tuple(image.shape[-2:]) for name, image in condition.images.items()})
        return predict(self, noised, condition)

    monkeypatch.setattr(Flux2, "predict", watched)
    data = {
        "resolution": 64,
        "buckets": {"step": 16},
        "conditions": {"person": {"folder": "p"}, "style": {"folder": "s", "align": "own"}},
    }
    model = {"family": "flux2", "path": str(shipped_folder("tiny-flux2")), "weights": "random"}
    MetaModel(Recipe.model_validate({"model": model, "data": data})).activations(SQUARE, 1)
    [shapes] = seen
    assert shapes["person"] == (4, 4)
    assert sorted(shapes["style"]) == [4, 5]


def test_estimate_works_with_page_locked_inputs(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_family, "to_device", lambda tensor, device: tensor.pin_memory().to(device))
    assert MetaModel(recipe(tiny)).activations(SQUARE, 1).kept > 0


def test_estimate_works_for_a_float16_text_encoder_with_float32_layers() -> None:
    settings = recipe(shipped_folder("tiny-sd3"), model__family="sd3", model__weights="random", run__precision="fp16")
    assert MetaModel(settings).activations(SQUARE, 1).kept > 0


@pytest.mark.gpu
def test_estimate_works_for_the_gpu_of_this_machine(tiny: Path) -> None:
    assert MetaModel(recipe(tiny), "cuda").activations(SQUARE, 1).kept > 0


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["fp32", "same"])
def test_activations_under_autocast_match_a_real_pass_within_2_percent(tiny: Path, weights: str) -> None:
    settings = recipe(tiny, run__precision="bf16", run__weight_dtype=weights)
    real = really_kept(settings, WIDE, 4)
    assert abs(MetaModel(settings).activations(WIDE, 4).kept - real) <= 0.02 * real
    assert real < really_kept(recipe(tiny), WIDE, 4)


@pytest.mark.slow
def test_recompute_keeps_less_and_skipped_blocks_keep_more(tiny: Path) -> None:
    plain = MetaModel(recipe(tiny)).activations(SQUARE, 4)
    kept = [
        MetaModel(recipe(tiny, run__gradient_checkpointing={"enabled": True, "skip_first": n})).activations(SQUARE, 4)
        for n in (0, 3, 1000)
    ]
    assert [a.kept for a in kept] == sorted({a.kept for a in kept})
    assert kept[0].bytes < plain.bytes / 2
    assert kept[-1].kept == plain.kept
    assert kept[-1].again == 0
    assert 0 < kept[0].again < plain.kept


def test_recomputed_block_is_counted_in_addition(tiny: Path) -> None:
    outline = MetaModel(recipe(tiny, run__gradient_checkpointing={"enabled": True}))
    small, large = outline.activations(SQUARE, 2), outline.activations(WIDE, 4)
    assert large.again > 3 * small.again
    assert small.bytes == small.kept + small.again


def test_estimate_is_repeatable_and_equal_for_rotated_bucket(tiny: Path) -> None:
    outline = MetaModel(recipe(tiny))
    first = outline.activations(WIDE, 2)
    assert outline.activations(WIDE, 2) == first
    assert outline.activations(TALL, 2) == first


def test_estimate_matches_tensors_of_a_real_model_and_update(tiny: Path) -> None:
    for changes in (
        {"optim__ema__rule": "ramp"},
        {"run__precision": "bf16", "run__weight_dtype": "same", "run__frozen_dtype": "same"},
        {"model__train": ["text_encoder"], "data__cache__latents": True},
        {"optim__optimizer": {"kind": "schedule-free-adamw"}, "optim__ema__rule": "ramp"},
        {"run__precision": "bf16", "run__weight_dtype": "pure", "optim__stochastic_rounding": True},
    ):
        settings = recipe(tiny, **changes)
        memory = memory_of(MetaModel(settings), {SQUARE: 2})
        runtime = Runtime(torch.device("cpu"), Launch(), settings.run)
        real = assemble.open_model(resolve(settings, 1), assemble.open_files(settings), runtime)
        tensors = real.update.tensors()
        assert memory.checkpoint == memory.copy == _bytes(tensors.values())
        assert memory.gradients == _bytes(real.trained.values())
        assert memory.weights == sum(_bytes((*m.parameters(), *m.buffers())) for m in real.family.parts().values())
        assert memory.ema == _bytes(t for n, t in tensors.items() if n.startswith("ema/"))
        numbers = sum(p.numel() for p in real.trained.values())
        states = _bytes(t for n, t in tensors.items() if n.startswith("opt.") and n not in ("opt.applied", EMA_COUNT))
        assert memory.optimizer == states == 8 * numbers + 16 * (settings.optim.optimizer.kind != "adamw")
        assert memory.masters == (4 * numbers if settings.run.weight_dtype == "same" else 0)
        assert memory.update == real.update.working_bytes()
        assert memory.loading >= memory.weights + memory.masters + memory.optimizer + memory.ema
        passes, after = memory.activations[SQUARE].with_gradients, memory.gradients + memory.update
        assert memory.peak == max(memory.steady - memory.gradients + max(passes, after), memory.loading)
        assert {part.name for part in memory.parts if part.loaded} == set(real.family.parts())


@pytest.mark.slow
def test_gradients_are_counted_in_the_dtype_of_their_sums(tiny: Path) -> None:
    small = {"run__precision": "bf16", "run__weight_dtype": "same"}
    same, wide = (
        memory_of(MetaModel(recipe(tiny, run__gradient_dtype=k, **small)), {SQUARE: 2}) for k in ("same", "fp32")
    )
    assert wide.gradients == 2 * same.gradients
    assert (same.update, wide.update) == (4 * same.gradients // 2, 0), "float32 sums need no cast"
    ddp = memory_of(
        MetaModel(recipe(tiny, run__runtime="ddp", run__gradient_dtype="same", **small)), {SQUARE: 4}, processes=2
    )
    assert (ddp.gradients, ddp.steady) == (same.gradients, same.steady), "buckets are the gradients"


def test_update_in_backward_counts_one_gradient_at_a_time(tiny: Path) -> None:
    plain = {"optim__clip": {"norm": None}, "run__precision": "bf16", "run__weight_dtype": "same"}
    outline = MetaModel(recipe(tiny, optim__in_backward=True, run__gradient_dtype="same", **plain))
    largest = max(p.numel() for p in outline.trained.values())
    assert memory_of(outline, {SQUARE: 2}).gradients == (2 + 4) * largest


@pytest.mark.slow
def test_learned_tokens_count_their_gradients_and_the_encoder_pass(tiny: Path) -> None:
    words = {"model__tokens__words": {"<toy>": "a"}, "model__tokens__vectors": 3}
    alone = memory_of(MetaModel(recipe(tiny, model__train=["tokens"], **words)), {SQUARE: 2})
    beside = memory_of(MetaModel(recipe(tiny, model__train=["denoiser", "tokens"], **words)), {SQUARE: 2})
    plain = memory_of(MetaModel(recipe(tiny)), {SQUARE: 2})
    assert alone.gradients == 3 * 32 * 4 == beside.gradients - plain.gradients
    assert beside.activations[SQUARE].kept > plain.activations[SQUARE].kept


def test_loading_counts_fp32_trained_and_low_precision_frozen_parts(tiny: Path) -> None:
    """A frozen text encoder in bf16, and a denoiser that is mostly frozen."""
    small = {
        "run__precision": "bf16",
        "run__frozen_dtype": "same",
        "model__freeze": ["denoiser/*", "!denoiser/conv_in.*"],
    }
    counted = memory_of(MetaModel(recipe(tiny, **small)), {Size(16, 16): 1})
    parts = {part.name: part for part in counted.parts if part.loaded}
    others = sum(part.bytes for name, part in parts.items() if name != "denoiser")
    in_bf16 = 2 * sum(part.parameters for name, part in parts.items() if name != "denoiser")
    assert in_bf16 <= others < 1.01 * in_bf16, "plus a table of positions"
    whole = 4 * sum(part.parameters for part in parts.values())
    assert 4 * parts["denoiser"].parameters + others <= counted.loading < whole


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torchao") is None, reason="needs the extra low-bit")
def test_quantized_base_is_counted_in_its_size(tiny: Path) -> None:
    lora = {"model__adapter__kind": "lora", "run__precision": "bf16"}
    counted = {
        kind: memory_of(MetaModel(recipe(tiny, run__frozen_dtype=kind, **lora)), {SQUARE: 2})
        for kind in ("same", "int8", "nf4")
    }
    parts = {kind: memory.parts[0] for kind, memory in counted.items()}
    assert len({(part.parameters, part.trained) for part in parts.values()}) == 1
    unet = MetaModel(recipe(tiny)).family.parts()["denoiser"]
    linear = [m.weight for m in unet.modules() if isinstance(m, nn.Linear)]
    scales = sum(len(weight) for weight in linear)
    assert parts["same"].bytes - parts["int8"].bytes == sum(w.numel() for w in linear) - 4 * scales
    assert parts["nf4"].bytes < parts["int8"].bytes
    assert counted["int8"].peak < counted["same"].peak
    assert counted["int8"].activations[SQUARE].kept <= counted["same"].activations[SQUARE].kept
    assert counted["int8"].gradients == counted["same"].gradients


TWICE = {"optim__accumulation": 2}
BF16 = {"run__precision": "bf16", "run__weight_dtype": "same"}
RECOMPUTE = {"run__gradient_checkpointing": {"enabled": True}}
MEASURED = {
    "plain": (TWICE, (64, 4)),
    "recompute, adafactor": (TWICE | RECOMPUTE | {"optim__optimizer": {"kind": "adafactor"}}, (128, 4)),
    "bf16, separate masters, ema": (
        TWICE | BF16 | {"run__gradient_dtype": "same", "optim__ema": {"rule": "ramp"}},
        (64, 4),
    ),
}
MEASURED_EXHAUSTIVELY = {
    "plain, large activations": (TWICE, (256, 8)),
    "one micro-batch": ({}, (128, 4)),
    "one micro-batch, large activations": ({}, (256, 8)),
    "bf16, float32 gradient sums": (TWICE | BF16 | {"run__gradient_dtype": "fp32"}, (128, 4)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        *(pytest.param(case, id=name) for name, case in MEASURED.items()),
        *(pytest.param(case, id=name, marks=pytest.mark.exhaustive) for name, case in MEASURED_EXHAUSTIVELY.items()),
    ],
)
def test_estimate_matches_measured_memory_of_real_run(
    case: tuple[dict[str, Any], tuple[int, int]], tmp_path: Path
) -> None:
    """Memory of the process as the kernel counts it: after opening the model within 2 %, the peak within 10 %.

    Measured in a process of its own, so that no memory freed before is reused.
    """
    changes, (side, samples) = case
    model = shutil.copytree(shipped_folder("tiny-sd"), tmp_path / "model")
    config = json.loads((model / "unet/config.json").read_text())
    wide = {"block_out_channels": [128, 256, 512, 512], "cross_attention_dim": config["cross_attention_dim"]}
    (model / "unet/config.json").write_text(json.dumps(UNET_15 | wide))
    settings = recipe(model, model__weights="random", **changes)
    counted = memory_of(MetaModel(settings), {Size(side, side): samples})
    assert counted.parts[0].parameters > 100e6
    task = [settings.model_dump(mode="json", by_alias=True), side, samples]
    # each tensor gets its own pages, which are returned when it is freed; malloc would keep up to a third more
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run([sys.executable, __file__, json.dumps(task)], env=env, capture_output=True, text=True)
    real = json.loads(done.stdout)
    assert real["weights"] == pytest.approx(counted.weights + counted.masters, rel=0.02)
    assert real["gradients"] == pytest.approx(counted.gradients, rel=0.02)
    assert real["states"] == pytest.approx(counted.optimizer + counted.ema, rel=0.02)
    assert real["opened"] == pytest.approx(counted.loading, rel=0.02)
    assert real["peak"] == pytest.approx(counted.peak, rel=0.1)


@pytest.mark.slow
def test_peak_overlaps_gradients_and_activations_of_one_micro_batch(tiny: Path) -> None:
    """With several micro-batches or processes, gradients exist during the next forward pass too."""
    one = memory_of(MetaModel(recipe(tiny)), {SQUARE: 4})
    kept = one.activations[SQUARE]
    assert max(one.gradients, kept.bytes) <= kept.with_gradients < one.gradients + kept.bytes
    alone = one.steady - one.gradients
    assert one.peak == max(alone + kept.with_gradients, one.steady + one.update)
    for several in (
        memory_of(MetaModel(recipe(tiny, optim__accumulation=2)), {SQUARE: 4}),
        memory_of(MetaModel(recipe(tiny)), {SQUARE: 8}, processes=2),
        memory_of(MetaModel(recipe(tiny, run__micro_batch=4)), {SQUARE: 8}),
    ):
        assert several.activations[SQUARE] == kept
        assert several.peak == several.steady + several.worst


def test_compiled_runs_count_full_batches(tiny: Path) -> None:
    full = memory_of(MetaModel(recipe(tiny, run__compile=True, data__batch_size=5)), {SQUARE: 2}).activations[SQUARE]
    assert full.samples == 5


def _measure(tree: dict[str, Any], side: int, samples: int) -> dict[str, int]:
    """Two real steps. weights, gradients, states: bytes of the tensors that lie there; opened, peak: what the process
    takes at most until the model is open, and in the steps, as the kernel counts it. Where a step has two
    micro-batches, the gradients of the first lie there while the second has its activations."""
    torch.set_num_threads(1)
    settings = Recipe.model_validate(tree)
    torch.nn.Conv2d(4, 4, 3)(torch.zeros(1, 4, 8, 8)).sum().backward()  # memory of libraries
    runtime = Runtime(torch.device("cpu"), Launch(), settings.run)
    small = with_values(settings, {"model.path": shipped_folder("tiny-sd")})  # imports
    assemble.open_model(resolve(small, 2), assemble.open_files(small), runtime)
    before = memory_of_this_process("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    model = assemble.open_model(resolve(settings, 2), assemble.open_files(settings), runtime)
    real = {"opened": memory_of_this_process("VmHWM") - before}
    batch = batch_of(torch.zeros(samples, 4, side // 8, side // 8), None)
    steps = [step_batches([batch] * settings.optim.accumulation, number) for number in range(2)]
    trainer = Trainer(model, steps, runtime, RunHost(), Progress(last_step=2))
    apply = model.update.apply

    def watched(**arguments: Any) -> None:
        real["gradients"] = _bytes(p.grad for p in model.trained.values())
        apply(**arguments)

    vars(trainer.model.update)["apply"] = watched
    for step in steps:
        trainer.train_step(step).result()
    real["peak"] = memory_of_this_process("VmHWM") - before
    parts = [t for m in model.family.parts().values() for t in (*m.parameters(), *m.buffers())]
    tensors = [*parts, *(t for name, t in trainer.tensors().items() if name.startswith("w/"))]
    real["weights"] = sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())
    real["states"] = _bytes(t for name, t in trainer.tensors().items() if not name.startswith("w/"))
    return real


def _bytes(tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


@pytest.mark.slow
def test_samples_per_device_are_its_share_or_the_micro_batch(tiny: Path) -> None:
    def samples(micro_batch: int | None, processes: int) -> int:
        outline = MetaModel(recipe(tiny, run__micro_batch=micro_batch))
        return memory_of(outline, {SQUARE: 7}, processes=processes).activations[SQUARE].samples

    assert [samples(None, 2), samples(3, 1), samples(8, 1)] == [4, 3, 7]


@pytest.mark.slow
def test_xformers_attention_is_counted_like_that_of_torch(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"mezzotint\[xformers\]"):
        memory_of(MetaModel(recipe(tiny, model__attention="xformers")), {SQUARE: 1})
    monkeypatch.setattr("mezzotint.training.precision.attention.find_spec", lambda name: object())
    counted = memory_of(MetaModel(recipe(tiny, model__attention="xformers")), {SQUARE: 1})
    assert counted == memory_of(MetaModel(recipe(tiny)), {SQUARE: 1})


def test_missing_attention_kernel_is_named(tiny: Path) -> None:
    with pytest.raises(RecipeError, match=r"model\.attention is cudnn") as caught:
        memory_of(MetaModel(recipe(tiny, model__attention="cudnn")), {SQUARE: 1})
    assert caught.value.code == "E1060"


def test_estimate_uses_no_random_numbers(tiny: Path) -> None:
    before = torch.random.get_rng_state()
    memory_of(MetaModel(recipe(tiny)), {SQUARE: 1})
    assert torch.equal(before, torch.random.get_rng_state())
    assert _is_free_of_values(MetaModel(recipe(tiny)).family)


def _is_free_of_values(family: ModelFamily) -> bool:
    return all(isinstance(t, FakeTensor) for m in family.parts().values() for t in (*m.parameters(), *m.buffers()))


def test_full_size_model_is_counted_from_its_configuration_files(tmp_path: Path) -> None:
    model = tmp_path / "sd15"
    for name, config in {"unet": UNET_15, "vae": VAE_15, "text_encoder": TEXT_15}.items():
        (model / name).mkdir(parents=True)
        (model / name / "config.json").write_text(json.dumps(config))
    for path in ("model_index.json", "scheduler/scheduler_config.json", *_tokenizer_files()):
        (model / path).parent.mkdir(exist_ok=True)
        (model / path).write_bytes((shipped_folder("tiny-sd") / path).read_bytes())
    settings = Recipe.model_validate({"model": {"path": str(model), "weights": "random"}})
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = memory_of_this_process("VmRSS")
    memory = memory_of(MetaModel(settings), {Size(512, 512): 4})
    grown = memory_of_this_process("VmHWM") - before
    parameters = {part.name: part.parameters for part in memory.parts}
    assert parameters == {"denoiser": 859_520_964, "text_encoder": 123_060_480, "vae": 83_653_863}
    assert 5e9 < memory.worst < 1e10
    assert memory.checkpoint == 12 * 859_520_964 + 4
    assert grown < 0.5e9  # the UNet alone would be 3.4 GB


def memory_of_this_process(kind: str) -> int:
    [kilobytes] = re.findall(rf"{kind}:\s+(\d+)", Path("/proc/self/status").read_text())
    return 1024 * int(kilobytes)


def _tokenizer_files() -> list[str]:
    return [f"tokenizer/{path.name}" for path in (shipped_folder("tiny-sd") / "tokenizer").iterdir() if path.is_file()]


@pytest.mark.slow
def test_fsdp_processes_need_less_memory_each(tiny: Path) -> None:
    """Each process has its rows of trained tensors, and two whole blocks of weights at a time."""

    def of(processes: int, **run: Any) -> Any:
        return memory_of(MetaModel(recipe(tiny, run__runtime="fsdp", **run)), {SQUARE: 4}, processes=processes)

    alone, four = of(1), of(4)
    assert four.optimizer == alone.optimizer // 4
    assert four.gradients == alone.gradients // 4
    assert (alone.masters, four.masters) == (0, alone.gradients // 4)
    assert four.weights < alone.weights
    kept = of(4, run__shard={"parameters": False})
    assert (kept.weights, kept.gradients, kept.optimizer) == (alone.weights, alone.gradients, four.optimizer)
    assert of(4, run__shard={"group": 2}).optimizer == alone.optimizer // 2
    assert four.checkpoint == alone.checkpoint


if __name__ == "__main__":
    print(json.dumps(_measure(*json.loads(sys.argv[1]))))


def test_only_buckets_that_may_need_most_are_measured(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[Size, int]] = []

    def activations(self: MetaModel, size: Size, samples: int) -> Activations:
        measured.append((size, samples))
        return Activations(samples, samples * size.width * size.height, 0, 0)

    monkeypatch.setattr(MetaModel, "activations", activations)
    batches = {SQUARE: 2, WIDE: 4, TALL: 4, Size(16, 16): 5, Size(8, 8): 5}
    memory = memory_of(MetaModel(recipe(tiny, data__batch_size=5)), batches)
    assert measured == [(TALL, 4), (Size(16, 16), 5)]
    assert memory.worst == 4 * 64 * 128
