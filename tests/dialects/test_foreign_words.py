"""How the words of a foreign line are read, and what becomes of a launcher that was pasted with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.dialects.shared import launchers, reading
from mezzotint.dialects.shared.reading import Spec, Value
from mezzotint.errors import RecipeError

SPECS = {
    spec.flag: spec
    for spec in (
        Spec("steps", "whole"),
        Spec("rate", "number"),
        Spec("rate_warmup", "whole"),
        Spec("folder", "text"),
        Spec("kind", "text", ("cosine", "constant")),
        Spec("prompts", "texts"),
        Spec("flip", "switch"),
        Spec("flip_vertically", "switch"),
    )
}
SCRIPTS = ("train_text_to_image.py",)


def read(*words: str) -> dict[str, Value]:
    parsed = reading.parse(words, SPECS)
    assert parsed.problems == []
    return parsed.values


def problems(*words: str) -> list[tuple[str, str, str]]:
    return [(p.where, p.code, f"{p.what} {p.remedy}".strip()) for p in reading.parse(words, SPECS).problems]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--steps=3"], {"steps": 3}),
        (["--steps", "3"], {"steps": 3}),
        (["--rate", "1e-5"], {"rate": 1e-5}),
        (["--rate", "-0.5"], {"rate": -0.5}),
        (["--kind", "=", "cosine", "--flip"], {"kind": "cosine", "flip": True}),
        (["--flip", "=", "True", "--rate", "=", "-0.5"], {"flip": True, "rate": -0.5}),
        (["--steps", "-1", "--flip"], {"steps": -1, "flip": True}),
        (["--folder=a=b"], {"folder": "a=b"}),
        (["--folder", r"C:\pictures\new"], {"folder": r"C:\pictures\new"}),
        (["--prompts", "a cat", "", "--steps", "1"], {"prompts": ("a cat", ""), "steps": 1}),
        (["--prompts=a cat"], {"prompts": ("a cat",)}),
        (["--flip", "--steps=1"], {"flip": True, "steps": 1}),
        (["--flip", "True"], {"flip": True}),
        (["--flip=0", "--steps=1"], {"flip": False, "steps": 1}),
        (["--flip", "false"], {"flip": False}),
        (["--kind=cosine"], {"kind": "cosine"}),
        ([], {}),
    ],
)
def test_values_are_read_in_every_spelling(words: list[str], expected: dict[str, Value]) -> None:
    assert read(*words) == expected


def test_an_abbreviation_that_fits_one_flag_is_that_flag_and_noted() -> None:
    parsed = reading.parse(["--fold", "x", "--flip"], SPECS)
    assert parsed.values == {"folder": "x", "flip": True}, "a whole name is no abbreviation of a longer one"
    assert parsed.notes == [("folder", "written --fold")]
    assert problems("--rat", "1")[0] == ("--rat", "E1016", "may be --rate, --rate_warmup write it out")


def test_an_equals_sign_that_stands_alone_is_noted_and_needs_a_value() -> None:
    assert reading.parse(["--kind", "=", "cosine"], SPECS).notes == [
        ("kind", "written --kind = cosine, is read as --kind=cosine")
    ]
    assert [where for where, _, _ in problems("--steps", "=", "--flip")] == ["--steps"]
    assert [where for where, _, _ in problems("--kind", "=")] == ["--kind"]


def test_the_last_of_two_counts_and_is_noted() -> None:
    parsed = reading.parse(["--steps=1", "--steps=2"], SPECS)
    assert parsed.values == {"steps": 2}
    assert [flag for flag, _ in parsed.notes] == ["steps"]


def test_everything_wrong_is_told_together_with_the_nearest_name() -> None:
    refused = problems(
        "--stepz", "3", "5", "--rate=fast", "stray", "--kind", "cosin", "--folder=", "--prompts", "-x", "1"
    )
    assert [(where, code) for where, code, _ in refused] == [
        ("--stepz", "E1016"), ("--rate", "E1017"), ("stray", "E1016"), ("--kind", "E1017"), ("--folder", "E1017"),
        ("--prompts", "E1017"), ("-x", "E1016"),
    ]  # fmt: skip
    said = {where: text for where, _, text in refused}
    assert "did you mean --steps?" in said["--stepz"]
    assert "did you mean cosine?" in said["--kind"]
    assert "variable" in said["--folder"]


@pytest.mark.parametrize(
    "words", [["--steps=1.5"], ["--steps=1e3"], ["--rate=nan"], ["--rate=inf"], ["--flip=2"], ["--folder=$MODEL_NAME"]]
)
def test_values_that_a_flag_cannot_take_are_refused(words: list[str]) -> None:
    assert [code for _, code, _ in problems(*words)] == ["E1017"]


def test_a_flag_that_is_needed_is_missed_once() -> None:
    specs = {"model": Spec("model", "text", required=True)}
    assert [p.where for p in reading.parse([], specs).problems] == ["--model"]
    assert [p.what for p in reading.parse(["--model"], specs).problems] == ["has no value"]


def test_signs_of_continuation_are_dropped_with_a_note() -> None:
    words, notes = reading.without_signs(["--a", "1", "\\", "--b", "^", "`", " ", r"C:\x", "--c="])
    assert words == ["--a", "1", "--b", r"C:\x", "--c="]
    assert len(notes) == 1
    assert reading.without_signs(["--a", ""]) == (["--a", ""], [])


@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_words_break_the_reader(words: list[str]) -> None:
    cleaned, _ = reading.without_signs(words)
    parsed = reading.parse(launchers.strip(cleaned, SCRIPTS).words, SPECS)
    assert set(parsed.values) <= set(SPECS)


# --- launchers --------------------------------------------------------------------------------------------------------


def pasted(line: str) -> launchers.ParsedCommand:
    return launchers.strip(line.split(), SCRIPTS)


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
def test_launchers_are_known_with_what_they_start(line: str, tool: str, processes: int | str) -> None:
    command = pasted(line)
    assert (command.tool, command.processes, command.words) == (tool, processes, ["--a=1"])


def test_a_launcher_of_several_is_answered_with_the_line_to_type() -> None:
    line = "accelerate launch --multi_gpu --num_processes=4 --mixed_precision=bf16 train_text_to_image.py --a b"
    with pytest.raises(RecipeError) as caught:
        pasted(line).insist("some-dialect", 1)
    assert caught.value.code == "E1019"
    assert caught.value.exit_status == 2
    assert str(caught.value).endswith(
        "type: torchrun --nproc-per-node 4 -m mezzotint train --as some-dialect -- --mixed_precision=bf16 --a b"
    )
    pasted(line).insist("some-dialect", 4)
    with pytest.raises(RecipeError, match="4 processes, and 2 are running"):
        pasted(line).insist("some-dialect", 2)


def test_the_line_to_type_says_where_machines_meet_and_keeps_the_own_precision() -> None:
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
    return launchers.strip(line.split(), SCRIPTS)


def test_a_launcher_s_configuration_says_precision_and_processes(tmp_path: Path) -> None:
    command = config(tmp_path)
    assert (command.processes, command.machines, command.mixed_precision, command.cpu) == (8, 1, "fp16", False)
    alone = config(tmp_path, kind="NO", precision="no", cpu="true")
    assert (alone.processes, alone.mixed_precision, alone.cpu) == (1, "no", True)


def test_a_flag_of_the_launcher_wins_over_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG.format(kind="MULTI_GPU", precision="fp16", cpu="false"))
    line = f"accelerate launch --mixed_precision bf16 --num_processes 2 --config_file={tmp_path}/c.yaml x.py"
    command = launchers.strip(line.split(), SCRIPTS)
    assert (command.mixed_precision, command.processes, command.script) == ("bf16", 2, "x.py")


@pytest.mark.parametrize(
    ("kind", "precision", "words"), [("FSDP", "fp16", "asks for FSDP"), ("NO", "fp8", "takes no, fp16 or bf16")]
)
def test_what_a_configuration_asks_for_and_cannot_have_is_named(
    kind: str, precision: str, words: str, tmp_path: Path
) -> None:
    [problem] = config(tmp_path, kind=kind, precision=precision).problems
    assert words in problem.what
    assert problem.code == "E1019"


def test_a_configuration_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c").write_text("- a\n- b\n")
    for name, word in (("a", "No such file"), ("b", "no text"), ("c", "no YAML")):
        command = launchers.strip(["accelerate", "launch", "--config_file", str(tmp_path / name), "x.py"], SCRIPTS)
        assert word in command.problems[0].what
        if name == "a":
            assert "accelerate config" in command.problems[0].remedy
            assert "--num_processes" in command.problems[0].remedy
