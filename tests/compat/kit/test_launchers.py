"""Launchers pasted with a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.compat.kit import launchers
from mezzotint.errors import RecipeError

SCRIPTS = ("train_text_to_image.py",)


def pasted(line: str) -> launchers.ParsedCommand:
    return launchers.strip_launcher(line.split(), SCRIPTS)


@pytest.mark.parametrize(
    ("line", "tool", "processes"),
    [
        ("--a=1", "", 1),
        ("python train_text_to_image.py --a=1", "python", 1),
        ("python3 -u examples/train_text_to_image.py --a=1", "python", 1),
        ("train_text_to_image.py --a=1", "python", 1),
        ("CUDA_VISIBLE_DEVICES=0 python train_text_to_image.py --a=1", "python", 1),
        ("accelerate launch train_text_to_image.py --a=1", "accelerate", 1),
        ("accelerate launch --num_processes=1 train_text_to_image.py --a=1", "accelerate", 1),
        ("accelerate launch --multi_gpu train_text_to_image.py --a=1", "accelerate", "gpu"),
        (
            "accelerate launch --multi_gpu --num_processes 8 --num_machines 2 train_text_to_image.py --a=1",
            "accelerate",
            4,
        ),
        ("python -m accelerate.commands.launch --num-processes 2 train_text_to_image.py --a=1", "accelerate", 2),
        ("torchrun --nproc-per-node 8 train_text_to_image.py --a=1", "torchrun", 8),
        ("torchrun --nproc_per_node=gpu train_text_to_image.py --a=1", "torchrun", "gpu"),
        ("python -m torch.distributed.run --nproc-per-node=3 train_text_to_image.py --a=1", "torchrun", 3),
    ],
)
def test_launchers_are_recognized_with_their_script(line: str, tool: str, processes: int | str) -> None:
    command = pasted(line)
    assert (command.tool, command.processes, command.arguments) == (tool, processes, ["--a=1"])


def test_launcher_of_several_processes_prints_the_torchrun_command() -> None:
    line = "accelerate launch --multi_gpu --num_processes=4 --mixed_precision=bf16 train_text_to_image.py --a b"
    with pytest.raises(RecipeError) as caught:
        pasted(line).check_processes("some-dialect", 1)
    assert caught.value.code == "E1019"
    assert caught.value.exit_status == 2
    assert str(caught.value).endswith(
        "type: torchrun --nproc-per-node 4 -m mezzotint train --as some-dialect -- --mixed_precision=bf16 --a b"
    )
    pasted(line).check_processes("some-dialect", 4)
    with pytest.raises(RecipeError, match="4 processes, and 2 are running"):
        pasted(line).check_processes("some-dialect", 2)


def test_printed_command_has_rendezvous_address_and_precision() -> None:
    line = (
        "accelerate launch --num_processes=16 --num_machines=2 --machine_rank=1 --main_process_ip=10.0.0.1 "
        "--main_process_port=29501 --mixed_precision=fp16 train_text_to_image.py --mixed_precision=bf16"
    )
    assert pasted(line).torchrun("d") == (
        "torchrun --nnodes 2 --master-addr 10.0.0.1 --master-port 29501 --node-rank 1 --nproc-per-node 8 "
        "-m mezzotint train --as d -- --mixed_precision=bf16"
    )


CONFIG = """\
compute_environment: LOCAL_MACHINE
distributed_type: {kind}
downcast_bf16: 'no'
mixed_precision: {precision}
num_machines: 1
num_processes: 8
rdzv_backend: static
tpu_env: []
use_cpu: {cpu}
"""


def config(
    folder: Path, kind: str = "MULTI_GPU", precision: str = "fp16", cpu: str = "false"
) -> launchers.ParsedCommand:
    (folder / "default_config.yaml").write_text(CONFIG.format(kind=kind, precision=precision, cpu=cpu))
    line = f"accelerate launch --config_file {folder / 'default_config.yaml'} train_text_to_image.py --a=1"
    return launchers.strip_launcher(line.split(), SCRIPTS)


def test_launcher_configuration_sets_precision_and_processes(tmp_path: Path) -> None:
    command = config(tmp_path)
    assert (command.processes, command.machines, command.mixed_precision, command.cpu) == (8, 1, "fp16", False)
    alone = config(tmp_path, kind="NO", precision="no", cpu="true")
    assert (alone.processes, alone.mixed_precision, alone.cpu) == (1, "no", True)


def test_launcher_flags_override_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.format(kind="MULTI_GPU", precision="fp16", cpu="false"))
    line = f"accelerate launch --mixed_precision bf16 --num_processes 2 --config_file={tmp_path}/c.yaml x.py"
    command = launchers.strip_launcher(line.split(), SCRIPTS)
    assert (command.mixed_precision, command.processes, command.script) == ("bf16", 2, "x.py")


@pytest.mark.parametrize(
    ("kind", "precision", "words"), [("FSDP", "fp16", "asks for FSDP"), ("NO", "fp8", "takes no, fp16 or bf16")]
)
def test_unsupported_launcher_configuration_is_reported(kind: str, precision: str, words: str, tmp_path: Path) -> None:
    [problem] = config(tmp_path, kind=kind, precision=precision).problems
    assert words in problem.message
    assert problem.code == "E1019"


def test_missing_or_binary_launcher_configuration_is_reported(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c").write_text("- a\n- b\n")
    for name, word in (("a", "No such file"), ("b", "not text"), ("c", "is not YAML")):
        command = launchers.strip_launcher(
            ["accelerate", "launch", "--config_file", str(tmp_path / name), "x.py"], SCRIPTS
        )
        assert word in command.problems[0].message
        if name == "a":
            assert "accelerate config" in command.problems[0].remedy
            assert "--num_processes" in command.problems[0].remedy
