"""How weights are read: each straight into the form in which it stays, so that beside what stays there is memory for
the largest tensor at most."""

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
from mezzotint.tasks.holding import forms_read
from mezzotint.tasks.resolving import resolve
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder import components, state
from mezzotint.weights.low_bit import WeightForm
from support.forked import each_of_two, exit_status

has_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs torchao")
MIB = 1 << 20
SLACK = 12 * MIB
"""What reading takes besides: headers, the network's own objects."""
PACKING = 16 * MIB
"""What packing takes on the way to few bits: 10 MiB of values at once, and what small tensors that stay between them
leave free."""
_MMAP_THRESHOLD = -3
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
        tensor_files.write_in_turn(folder / file, header, each)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder / "model.safetensors.index.json"


def _filled(values: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return values.repeat(-(-count // len(values)))[:count].reshape(shape)


def facts(name: str) -> int:
    """Bytes of this process by a line of the kernel's; memory of its own, not of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def returns_memory() -> None:
    """What is let go, now and from now on, goes back to the system."""
    gc.collect()
    system = ctypes.CDLL(None)
    system.mallopt(_MMAP_THRESHOLD, MIB)
    system.malloc_trim(0)


def stays(network: torch.nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))


def reads_within(
    network: str, config: dict[str, Any], file: Path, form: str, room: int | None = None
) -> subprocess.CompletedProcess[str]:
    """`read_alone` in a process of its own, which has no memory left from tests before."""
    words = f"{network!r}, {config!r}, Path({str(file)!r}), {form!r}, {room}"
    code = f"import test_holding as t\nfrom pathlib import Path\nt.read_alone({words})"
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path]
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True)


def read_alone(network: str, config: dict[str, Any], file: Path, name: str, room: int | None) -> None:
    """Reads a network in a process that is given memory for what stays, for the largest tensor, and no more. room:
    beside what stays, if not that."""
    returns_memory()
    form = FORMS[name]
    shapes = components.shapes(network, config, where=file)
    largest = 2 * max(torch.Size(shape).numel() for shape in shapes.values())
    components.load(network, config, file, form, where=file)  # imports and tables that are made once
    size = stays(components.load(network, config, file, form, where=file))
    child = os.fork()
    if child:
        status = exit_status(child)
        assert status == 0, f"{status}: 2 where more stays than the network has, 3 where there was no room on the way"
        return
    status = 1
    try:
        torch.set_num_threads(1)
        returns_memory()
        before = facts("RssAnon")
        beside = SLACK if form.low_bit is None else SLACK + PACKING
        most = facts("VmData") + size + (largest if room is None else room) + beside
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        loaded = components.load(network, config, file, form, where=file)
        returns_memory()
        grown = facts("RssAnon") - before
        print(f"{grown / MIB:.1f} MiB more, {stays(loaded) / MIB:.1f} MiB stay", file=sys.stderr, flush=True)
        status = 0 if grown <= stays(loaded) + SLACK else 2
    except (MemoryError, RuntimeError):
        traceback.print_exc()
        print(f"{(facts('VmData') - most) / MIB:.1f} MiB beyond what it was given", file=sys.stderr, flush=True)
        status = 3
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


@pytest.mark.slow
@has_torchao
@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_a_sharded_network_is_read_within_what_stays_and_its_largest_tensor(form: str, tmp_path: Path) -> None:
    config = {"num_layers": 2, "num_attention_heads": 8, "attention_head_dim": 128, "joint_attention_dim": 2048}
    file = sharded(tmp_path, QWEN, config)
    run = reads_within(QWEN, config, file, form)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_an_encoder_is_read_within_what_stays(tmp_path: Path) -> None:
    config = T5 | {"d_model": 1024, "d_ff": 4096, "num_layers": 2}
    file = sharded(tmp_path, "t5_text", config)
    run = reads_within("t5_text", config, file, "bf16")
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_with_less_memory_than_stays_there_is_an_error(tmp_path: Path) -> None:
    config = T5 | {"d_model": 1024, "d_ff": 4096, "num_layers": 2}
    file = sharded(tmp_path, "t5_text", config)
    run = reads_within("t5_text", config, file, "fp32", room=-64 * MIB - SLACK)
    assert run.returncode == 1
    assert "AssertionError: 3:" in run.stderr


@pytest.mark.slow
@has_torchao
@pytest.mark.parametrize(("form", "network"), [("bf16", QWEN), ("int8", "t5_text")])
def test_two_gigabytes_are_read_within_what_stays_and_the_largest_tensor(
    form: str, network: str, tmp_path: Path
) -> None:
    of_qwen = {"num_layers": 10, "num_attention_heads": 14, "attention_head_dim": 128, "joint_attention_dim": 2048}
    config = of_qwen if network == QWEN else T5 | {"d_model": 4096, "d_ff": 10240, "num_layers": 8}
    file = sharded(tmp_path, network, config)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 1.9e9
    run = reads_within(network, config, file, form)
    assert run.returncode == 0, run.stderr


def test_each_part_is_read_into_the_type_in_which_it_stays_and_to_its_device() -> None:
    def forms(text: str) -> dict[str, WeightForm]:
        recipe = read_text(f"schema: 1\nmodel: {{family: sd, path: X{text}").recipe
        return forms_read(recipe, ("denoiser", "vae"), torch.device("meta"))

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
    """In one of two processes: reads its rows of a network within the memory that they take, and computes with it."""
    returns_memory()
    runtime = fsdp.Runtime(
        torch.device("cpu"),
        Launch(rank, rank, 2, 2, launcher="torchrun"),
        RunSettings.model_validate({"runtime": "fsdp", "device": "cpu", "threads": 1}),
    )
    form = replace(FORMS["fp32"], is_later=True)
    opened = components.load(network, config, file, form, where=file)
    trained = {f"denoiser/{name}": p for name, p in opened.named_parameters()}
    numbers = sum(p.numel() for p in trained.values())
    largest = max(p.numel() for p in trained.values())
    assert runtime.share("here") == "here"  # makes the threads that speak to the others, each with a stack of its own
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
    if rank:  # as if another model lay on the second machine
        state.Filling.sample = lambda self: "another"  # type: ignore[method-assign]
    with pytest.raises(WeightsError, match="different weights") as caught:
        runtime._fill(components.load(network, config, file, form, where=file))
    assert caught.value.code == "E1485"


@pytest.mark.slow
@pytest.mark.distributed
def test_of_two_processes_each_reads_its_rows_and_none_has_the_whole(tmp_path: Path) -> None:
    config = T5 | {"d_model": 1024, "d_ff": 4096, "num_layers": 4}
    file = sharded(tmp_path, "t5_text", config)
    each_of_two(lambda rank: _shares(rank, "t5_text", config, file))


def test_a_sample_tells_files_apart(tmp_path: Path) -> None:
    form, samples = replace(FORMS["fp32"], is_later=True), []
    for name, number in (("one", 1.0), ("copy", 1.0), ("other", 2.0)):
        save_file({"weight": torch.full((3, 2), number), "bias": torch.zeros(3)}, tmp_path / f"{name}.safetensors")
        network = state.on_meta(lambda: torch.nn.Linear(2, 3))
        state.load_into(network, tensor_files.InFile(tmp_path / f"{name}.safetensors"), form)
        filling = state.left_for_later(network)
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
def test_a_run_whose_text_and_latents_are_cached_reads_no_encoder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
