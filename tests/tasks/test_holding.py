"""How weights are read: each tensor directly in its final dtype and on its device, so that reading needs memory for the
result and one tensor."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import json
import os
import resource
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mezzotint.errors import WeightsError
from mezzotint.runtimes import fsdp
from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.settings.families.base import specs
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.run import RunSettings
from mezzotint.tasks import assemble
from mezzotint.tasks.holding import resolve_read_forms
from mezzotint.tasks.resolving import resolve
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder import components, state
from mezzotint.weights.low_bit import WeightForm
from support.forked import each_of_two, exit_status

has_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs torchao")
MIB = 1 << 20
SLACK = 12 * MIB
"""Memory for headers and for the network's own objects."""
PACKING = 16 * MIB
"""Memory for quantizing: 10 MiB of values at once, and gaps that small tensors leave."""
_MMAP_THRESHOLD = -3
OUT_OF_MEMORY = "out of memory"
QWEN = "diffusers.models.transformers.transformer_qwenimage.QwenImageTransformer2DModel"
FORMS = {
    "fp32": WeightForm(torch.float32),
    "bf16": WeightForm(torch.bfloat16),
    "int8": WeightForm(torch.bfloat16, "int8"),
    "nf4": WeightForm(torch.bfloat16, "nf4"),
}
T5 = {"feed_forward_proj": "gated-gelu", "num_heads": 8, "d_kv": 64, "num_layers": 4, "vocab_size": 512}


def sharded(folder: Path, network: str, config: dict[str, Any]) -> Path:
    """Weights of a network in bf16, in two files with an index, written tensor by tensor."""
    shapes = components.shapes(network, config, where=folder / "config.json")
    values = torch.randn(1 << 16, generator=torch.Generator().manual_seed(1)).bfloat16()
    names, weight_map = list(shapes), {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        header = {name: tensor_files.TensorInfo("BF16", shapes[name]) for name in part}
        each = ((name, _filled(values, shapes[name])) for name in part)
        tensor_files.write_iteratively(folder / file, header, each)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder / "model.safetensors.index.json"


def _filled(values: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return values.repeat(-(-count // len(values)))[:count].reshape(shape)


def facts(name: str) -> int:
    """Bytes of this process from a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def returns_memory() -> None:
    """Freed memory is returned to the system, now and from now on."""
    gc.collect()
    system = ctypes.CDLL(None)
    system.mallopt(_MMAP_THRESHOLD, MIB)
    system.malloc_trim(0)


def stays(network: torch.nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))


def read_in_another_process(*cases: tuple[str, dict[str, Any], Path, str, int | None]) -> list[str]:
    """`read_limited` of each case, in one process that has no memory left from tests before; the errors, "" for none.

    A case: network, its configuration, the file, the form, and the bytes allowed in addition to what stays, None for
    the largest tensor.
    """
    words = [(network, config, str(file), form, room) for network, config, file, form, room in cases]
    code = f"import test_holding as t\nt.read_all({words!r})"
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results: list[str] = json.loads(done.stdout.splitlines()[-1])
    return results


def read_all(cases: list[tuple[str, dict[str, Any], str, str, int | None]]) -> None:
    results = [read_limited(network, config, Path(file), form, room) for network, config, file, form, room in cases]
    print(json.dumps(results))


def read_limited(network: str, config: dict[str, Any], file: Path, name: str, room: int | None) -> str:
    """Reads a network in a forked process that is given memory for what stays, for the largest tensor, and no more."""
    returns_memory()
    form = FORMS[name]
    shapes = components.shapes(network, config, where=file)
    largest = 2 * max(torch.Size(shape).numel() for shape in shapes.values())
    size = stays(components.load(network, config, file, form, where=file))  # also imports, and tables made once
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            error = pipe.read()
        return error or ("" if exit_status(child) == 0 else "no result")
    error = "interrupted"
    try:
        torch.set_num_threads(1)
        returns_memory()
        before = facts("RssAnon")
        extra = SLACK if form.low_bit is None else SLACK + PACKING
        most = facts("VmData") + size + (largest if room is None else room) + extra
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        loaded = components.load(network, config, file, form, where=file)
        returns_memory()
        grown = facts("RssAnon") - before
        is_small = grown <= stays(loaded) + SLACK
        error = "" if is_small else f"{grown / MIB:.1f} MiB more, {stays(loaded) / MIB:.1f} MiB stay"
    except (MemoryError, RuntimeError):
        error = f"{OUT_OF_MEMORY}, {(facts('VmData') - most) / MIB:.1f} MiB over: {traceback.format_exc()}"
    finally:
        os.write(write_end, error.encode())
        os._exit(0)


@pytest.mark.slow
@has_torchao
def test_reading_needs_memory_of_the_result_and_the_largest_tensor(tmp_path: Path) -> None:
    """Of a sharded network in each form, and of a text encoder; with less memory it fails."""
    (tmp_path / "qwen").mkdir()
    (tmp_path / "t5").mkdir()
    of_qwen = {"num_layers": 1, "num_attention_heads": 8, "attention_head_dim": 128, "joint_attention_dim": 2048}
    of_t5 = T5 | {"d_model": 1024, "d_ff": 4096, "num_layers": 2}
    qwen, t5 = sharded(tmp_path / "qwen", QWEN, of_qwen), sharded(tmp_path / "t5", "t5_text", of_t5)
    *results, too_small = read_in_another_process(
        *((QWEN, of_qwen, qwen, form, None) for form in ("fp32", "bf16", "int8")),
        ("t5_text", of_t5, t5, "bf16", None),
        ("t5_text", of_t5, t5, "fp32", -64 * MIB - SLACK),
    )
    assert results == [""] * 4
    assert too_small.startswith(OUT_OF_MEMORY)


@pytest.mark.slow
@pytest.mark.exhaustive
@has_torchao
@pytest.mark.parametrize(("form", "network"), [("bf16", QWEN), ("int8", "t5_text")])
def test_reading_two_gigabytes_needs_no_more(form: str, network: str, tmp_path: Path) -> None:
    of_qwen = {"num_layers": 10, "num_attention_heads": 14, "attention_head_dim": 128, "joint_attention_dim": 2048}
    config = of_qwen if network == QWEN else T5 | {"d_model": 4096, "d_ff": 10240, "num_layers": 8}
    file = sharded(tmp_path, network, config)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 1.9e9
    assert read_in_another_process((network, config, file, form, None)) == [""]


def test_each_part_is_read_in_its_final_dtype_and_device() -> None:
    def forms(text: str) -> dict[str, WeightForm]:
        recipe = read_text(f"schema: 1\nmodel: {{family: sd, path: X{text}").recipe
        return resolve_read_forms(recipe, ("denoiser", "vae"), torch.device("meta"))

    meta = torch.device("meta")
    full = forms("}\nrun: {precision: bf16, frozen_dtype: same}\n")
    vae = WeightForm(torch.bfloat16, None, meta, keeps_fp32=True)
    assert full == {"denoiser": WeightForm(torch.float32, None, meta), "vae": vae}
    alone = forms("}\nrun: {precision: bf16, weight_dtype: pure}\n")
    assert alone["denoiser"] == WeightForm(torch.bfloat16, None, meta)
    adapter = ", adapter: {kind: lora}}\nrun: {precision: bf16, frozen_dtype: int8}\n"
    assert forms(adapter)["denoiser"] == WeightForm(torch.bfloat16, "int8", meta, keeps_fp32=True)
    pissa = ", adapter: {kind: lora, init: pissa}}\nrun: {precision: bf16, frozen_dtype: same}\n"
    assert forms(pissa)["denoiser"] == WeightForm(torch.float32)
    shared = forms("}\nrun: {runtime: fsdp}\n")
    assert (shared["denoiser"].device.type, shared["vae"].device) == ("cpu", meta)


def _shares(rank: int, network: str, config: dict[str, Any], file: Path) -> None:
    """In one of two processes: reads its rows of a network with memory for them only."""
    returns_memory()
    runtime = fsdp.Runtime(
        torch.device("cpu"),
        Launch(rank, rank, 2, 2, launcher="torchrun"),
        RunSettings.model_validate({"runtime": "fsdp", "device": "cpu", "threads": 1}),
    )
    form = replace(FORMS["fp32"], is_deferred=True)
    opened = components.load(network, config, file, form, where=file)
    trained = {f"denoiser/{name}": p for name, p in opened.named_parameters()}
    numbers = sum(p.numel() for p in trained.values())
    largest = max(p.numel() for p in trained.values())
    assert runtime.share("here") == "here"  # starts the communication threads, each with its stack
    returns_memory()
    most = facts("VmData") + 4 * (numbers // 2 + largest) + SLACK
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    here = runtime.prepare({"denoiser": opened}, trained, [(block,) for block in opened.encoder.block])
    resource.setrlimit(resource.RLIMIT_DATA, before)
    expected = dict(tensor_files.iterate(file, [name.removeprefix("denoiser/") for name in here], parts=True))
    for name, rows in here.items():
        share, stored = runtime.shares[name], expected[name.removeprefix("denoiser/")]
        assert torch.equal(rows, stored[share.start : share.stop].float()), name
    assert sum(rows.nbytes for rows in here.values()) <= 4 * numbers // 2 + SLACK
    if rank:  # as if the second machine had another model
        state.Filling.sample = lambda self: "another"  # type: ignore[method-assign]
    other = components.load(network, config, file, form, where=file)
    with pytest.raises(WeightsError, match="different weights") as caught:
        runtime.prepare({"denoiser": other}, {f"denoiser/{name}": p for name, p in other.named_parameters()})
    assert caught.value.code == "E1485"


@pytest.mark.slow
@pytest.mark.distributed
def test_each_of_two_processes_reads_only_its_rows(tmp_path: Path) -> None:
    config = T5 | {"d_model": 1024, "d_ff": 4096, "num_layers": 2}
    file = sharded(tmp_path, "t5_text", config)
    each_of_two(lambda rank: _shares(rank, "t5_text", config, file))


def test_sample_of_weights_distinguishes_files(tmp_path: Path) -> None:
    form, samples = replace(FORMS["fp32"], is_deferred=True), []
    for name, number in (("one", 1.0), ("copy", 1.0), ("other", 2.0)):
        save_file({"weight": torch.full((3, 2), number), "bias": torch.zeros(3)}, tmp_path / f"{name}.safetensors")
        network = state.build_on_meta(lambda: torch.nn.Linear(2, 3))
        state.load_into(network, tensor_files.InFile(tmp_path / f"{name}.safetensors"), form)
        filling = state.get_deferred_filling(network)
        assert filling is not None
        samples.append(filling.sample())
    assert samples[0] == samples[1] != samples[2]


RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow"


@pytest.mark.parametrize(
    "name",
    [
        s.name if s.name == "flux" else pytest.param(s.name, marks=pytest.mark.slow)
        for s in specs()
        if s.is_flow_matching
    ],
)
def test_run_with_cached_latents_and_text_reads_no_encoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = RECORDS / name.replace("-", "_").replace("flux2", "flux2_klein") / "model"
    own = f"  {name.replace('-', '_')}: {{distilled: true}}\n" if name in ("z-image", "flux2", "flux") else ""
    recipe = read_text(
        f"schema: 1\nmodel:\n  family: {name}\n  path: {place}\n{own}data: {{cache: {{latents: true, text: true}}}}\n"
        "run: {device: cpu}\n"
    ).recipe
    read: list[Path] = []
    layer_streamer, whole = tensor_files.iterate, tensor_files.read
    monkeypatch.setattr(
        tensor_files,
        "iterate",
        lambda path, names, **named: (read.append(path), layer_streamer(path, names, **named))[1],
    )
    monkeypatch.setattr(tensor_files, "read", lambda path, *more, **named: (read.append(path), whole(path, *more))[1])
    runtime = Runtime(torch.device("cpu"), Launch(), recipe.run)
    model = assemble.open_model(resolve(recipe, 4), assemble.open_files(recipe), runtime)
    assert list(model.family.parts()) == ["denoiser"]
    assert {path.parent.name for path in read} == {"transformer"}
