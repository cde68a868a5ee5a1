"""Untrusted files are refused with a message at once; also files of a run that are valid but wrong."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint import durable, outside
from mezzotint.assets import MODELS
from mezzotint.data.formats import webdataset
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import DatasetError, MezzotintError, RecipeError, WeightsError
from mezzotint.settings.optimizers.library import Library
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.train import resume
from mezzotint.training.checkpoints import state
from mezzotint.training.optimizers import library
from mezzotint.training.optimizers.base import OptimizerStep
from mezzotint.training.progress import Progress
from mezzotint.weights.files import pickled, tensor_files
from mezzotint.weights.folder import components
from support.messages import refused


def header(text: bytes) -> bytes:
    """A safetensors file with only a header."""
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "text",
    [b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a": ' + b"9" * 5000 + b"}", b'{"a": {}, "a": {}}', b"\xff\xff"],
    ids=["deep", "long", "twice", "no-text"],
)
def test_header_that_is_not_json_is_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(header(text))
    with pytest.raises(WeightsError) as caught:
        tensor_files.read_header(tmp_path / "x.safetensors")
    assert caught.value.code == "E1402"


def test_shard_with_an_impossible_file_name_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "x.safetensors.index.json"
    for table in ({"a": "x" * 300 + ".safetensors"}, {"a": "a\0.safetensors"}):
        index.write_text(json.dumps({"weight_map": table}))
        with pytest.raises(WeightsError, match="does not exist") as caught:
            tensor_files.shards(index)
        assert caught.value.code == "E1404"


def member(name: bytes, size: bytes = b"00000000000\0", kind: bytes = b"0") -> bytes:
    """A tar header."""
    fields = [name.ljust(100, b"\0"), b"0000644\0", b"0000000\0" * 2, size, b"0" * 11 + b"\0", b" " * 8, kind]
    block = b"".join(fields).ljust(257, b"\0") + b"ustar\x0000"
    block = block.ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def extended(kind: bytes, body: bytes) -> bytes:
    return member(b"long", b"%011o\0" % len(body), kind) + body.ljust(512, b"\0")


TARS = {
    "size-of-88-bits": member(b"a.png", b"\x80" + (2**88 - 1).to_bytes(11, "big")),
    "size-of-24-digits": extended(b"x", b"33 size=100000000000000000000000\n") + member(b"a.png"),
    "3000-pax-headers": extended(b"x", b"10 path=x\n") * 3000 + member(b"a.png"),
    "3000-long-names": extended(b"L", b"x" * 9 + b"\0") * 3000 + member(b"a.png"),
}


@pytest.mark.parametrize("name", TARS)
def test_malformed_tar_shard_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(TARS[name] + bytes(2 * tarfile.BLOCKSIZE))
    with pytest.raises(DatasetError) as caught:
        webdataset.group_members(tmp_path / "x.tar")
    assert caught.value.code == "E1280"


def sparse_member() -> bytes:
    """The header of a member of GNU's old sparse format, whose map continues in the next block."""
    block = bytearray(member(b"x", kind=b"S"))
    block[482] = 1
    block[148:156] = b" " * 8
    return bytes(block[:148]) + b"%06o\0 " % sum(block) + bytes(block[156:])


CLAIMED = b"\x80" + (2**60).to_bytes(11, "big")
MAP_BLOCK = (b"0" * 11 + b"\0" + b"0" * 11 + b"\0").ljust(504, b"\0") + b"\x01".ljust(8, b"\0")
LARGE_HEADERS = {
    "long-name": (member(b"x", CLAIMED, b"L"), "a header of more than 1,048,576 bytes"),
    "attributes": (member(b"x", CLAIMED, b"x"), "a header of more than 1,048,576 bytes"),
    "sparse-map": (sparse_member() + MAP_BLOCK * 4000, "a header of more than 1,048,576 bytes"),
    "sparse-map-cut-off": (sparse_member() + MAP_BLOCK, "index out of range"),
    "sparse-map-in-the-data": (
        extended(b"x", b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n")
        + member(b"x", b"00010000000\0")
        + b"99999999999\n".ljust(512, b"0")
        + b"0\n" * (1 << 20),
        "a header of more than 1,048,576 bytes",
    ),
}


@pytest.mark.parametrize("name", LARGE_HEADERS)
def test_headers_of_a_tar_shard_are_bounded(name: str, tmp_path: Path) -> None:
    data, reason = LARGE_HEADERS[name]
    (tmp_path / "x.tar").write_bytes(data)
    with refused("E1280", reason):
        webdataset.group_members(tmp_path / "x.tar")


def test_duplicate_json_key_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' occurs twice"):
        outside.parse_json('{"b": {"a": 1, "a": 2}}')


@pytest.mark.parametrize(
    ("network", "folder", "change"),
    [
        ("unet", "unet", {"layers_per_block": 10**9}),
        ("unet", "unet", {"layers_per_block": [10**9] * 4}),
        ("unet", "unet", {"transformer_layers_per_block": 900}),  # bounded, and more than the file has tensors
        ("clip_text", "text_encoder", {"num_hidden_layers": 10**9}),
        ("clip_text", "text_encoder", {"vocab_size": 10**12}),
        ("vae", "vae", {"norm_num_groups": float("nan")}),
        ("vae", "vae", {"sample_size": [1] * 2000}),
    ],
)
def test_huge_configuration_is_refused_before_the_model_is_built(
    network: str, folder: str, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(components, "find_builder", lambda network: lambda config: pytest.fail("a network was built"))
    place = MODELS / "mezzotint-mini" / folder
    config = outside.read_json(place / "config.json") | change
    (weights,) = place.glob("*.safetensors")
    with pytest.raises(WeightsError, match=next(iter(change))) as caught:
        components.load(network, config, weights, where=place / "config.json")
    assert caught.value.code == "E1409"


@pytest.mark.parametrize("count", [0, 10**12, 1e30, True, "x", None])
def test_huge_noise_schedule_is_refused(count: object) -> None:
    if count is None or count is True:  # diffusers would accept it
        return
    with pytest.raises(WeightsError) as caught:
        Schedule.from_config({"num_train_timesteps": count})
    assert caught.value.code == "E1450"


@pytest.mark.parametrize("scale", ["x", 0, -1.0, float("nan"), float("inf"), [1], True])
def test_invalid_scaling_factor_is_refused(scale: object, tmp_path: Path) -> None:
    from mezzotint.families.sd import Family
    from mezzotint.settings.sections.model import ModelSettings

    shutil.copytree(MODELS / "mezzotint-mini", tmp_path / "m")
    path = tmp_path / "m" / "vae" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"scaling_factor": scale}))
    with pytest.raises(WeightsError, match="scaling_factor") as caught:
        _ = Family.files.of(ModelSettings(path=tmp_path / "m")).scaling
    assert caught.value.code == "E1409"


def optimizer_step(name: str, **options: float) -> OptimizerStep:
    return library.step_of(Library(class_name=f"torch.optim.{name}", options=options), {}, torch.zeros(()))


@pytest.mark.parametrize("name", ["Optimizer", "LBFGS", "SparseAdam"])
def test_unusable_optimizer_class_is_refused_before_the_first_step(name: str) -> None:
    with pytest.raises(RecipeError, match="cannot step with only a gradient") as caught:
        optimizer_step(name)
    assert caught.value.code == "E1061"
    with pytest.raises(RecipeError, match="no_such"):
        optimizer_step("NAdam", no_such=1)
    assert optimizer_step("NAdam", momentum_decay=4e-3)


@pytest.mark.parametrize("name", ["{step:9999999999}", "{name.__class__}", "{name!r}", "{step:{epoch}}", "{step:099x}"])
def test_export_name_with_a_hostile_format_is_refused(name: str) -> None:
    with pytest.raises(RecipeError, match=r"run\.export\.name"):
        read_text("schema: 1", overrides=[f"run.export.name='{name}'"])


def test_flipped_bit_in_a_stored_conversion_is_noticed(tmp_path: Path, pickles_read_here: None) -> None:
    torch.save({"a": torch.ones(64)}, tmp_path / "x.ckpt")
    store = tmp_path / "store"
    copy = pickled.as_safetensors(tmp_path / "x.ckpt", store)
    whole = copy.read_bytes()
    copy.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    assert pickled.as_safetensors(tmp_path / "x.ckpt", store).read_bytes() == whole
    dead = copy.with_name(durable.temporary_path(copy).name.replace(str(os.getpid()), "4194305"))
    dead.write_bytes(b"half")
    copy.unlink()
    assert pickled.as_safetensors(tmp_path / "x.ckpt", store).read_bytes() == whole
    assert not dead.exists(), "leftovers of a killed process are swept"


def sound() -> dict[str, Any]:
    """The minimal content of state.json."""
    recipe = json.loads(json.dumps(read_text("schema: 1").recipe.model_dump(mode="json", by_alias=True)))
    identity = {"data": "d", "parts": {}, "world_size": 1, "device": "cpu", "torch": "2", "threads": 1}
    return {"progress": Progress(step=1).state(), "callbacks": {}, "recipe": recipe, "identity": identity}


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "null": lambda v: None,
    "list": lambda v: [],
    "empty": lambda v: {},
    "recipe-null": lambda v: v | {"recipe": None},
    "recipe-empty": lambda v: v | {"recipe": {}},
    "run-null": lambda v: v | {"recipe": v["recipe"] | {"run": None}},
    "model-list": lambda v: v | {"recipe": v["recipe"] | {"model": []}},
    "seed-text": lambda v: v | {"recipe": v["recipe"] | {"run": v["recipe"]["run"] | {"seed": "x"}}},
    "identity-null": lambda v: v | {"identity": None},
    "identity-parts": lambda v: v | {"identity": v["identity"] | {"parts": 3}},
    "progress-step": lambda v: v | {"progress": v["progress"] | {"step": "1"}},
    "progress-bool": lambda v: v | {"progress": v["progress"] | {"samples": True}},
    "bad-steps": lambda v: v | {"progress": v["progress"] | {"bad_steps": ["x"]}},
    "rates": lambda v: v | {"progress": v["progress"] | {"rate_peak": {"denoiser": None}}},
    "callbacks": lambda v: v | {"callbacks": {"A": 1}},
    "no-callbacks": lambda v: {key: value for key, value in v.items() if key != "callbacks"},
    "owed": lambda v: v | {"owed": "export"},
    "micro-batch": lambda v: v | {"micro_batch": "2"},
    "deep": lambda v: v | {"recipe": json.loads("[" * 150 + "]" * 150)},
}


@pytest.mark.parametrize("kind", WRONG)
def test_valid_state_file_with_wrong_content_is_skipped_by_name(kind: str, tmp_path: Path) -> None:
    from mezzotint.run_folder import RunFolder

    folder = RunFolder(tmp_path / "run").open()
    for step, values in ((1, sound()), (2, WRONG[kind](sound()))):
        state.write(folder.checkpoints, step=step, tensors={"w/a": torch.ones(1)}, values=values, recipe_digest="")
    start = resume.choose("auto", folder, "mezzotint train x")
    assert start.checkpoint == folder.checkpoints / "step-00000001"
    assert "passed over step-00000002: state.json is" in start.sentences[0]
    with pytest.raises(state.DamagedCheckpoint, match=r"state\.json"):
        resume.choose("step-00000002", folder, "mezzotint train x")


def test_value_that_fails_only_when_used_counts_as_damage(tmp_path: Path) -> None:
    with pytest.raises(state.DamagedCheckpoint, match="KeyError: 'x'"), resume.wrap_state_errors(tmp_path):
        raise KeyError("x")
    with pytest.raises(MezzotintError, match="mine"), resume.wrap_state_errors(tmp_path):
        raise RecipeError("mine")
