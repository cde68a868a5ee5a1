"""Every command of MindONE's document on vanilla fine-tuning: one device, `mpirun`, launch scripts with rank tables of
8 and 16 devices, the cache. What starts several processes becomes torchrun commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from mezzotint.compat.mindone._launch import SCRIPTS
from mezzotint.compat.mindone.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched, Translation
from mezzotint.tasks.reading import foreign

ALONE = Launched()
PLAIN = "scripts/run_distribute_vanilla_ft_910b.sh"
HERE = f"bash {PLAIN} t.json 0 8 8 data"

SINGLE = """python train.py \\
  --config configs/training/sd_xl_base_finetune_910b.yaml \\
  --weight checkpoints/sd_xl_base_1.0_ms.ckpt \\
  --data_path /data/images/"""
MPI = """mpirun --allow-run-as-root -n 8 python train.py \\
  --config configs/training/sd_xl_base_finetune_multi_graph_910b.yaml \\
  --weight "" \\
  --data_path /data/images/ \\
  --max_device_memory "59GB" \\
  --param_fp16 True \\
  --is_parallel True"""
CACHE = """python train.py \\
  --task cache \\
  --config configs/training/sd_xl_base_finetune_910b.yaml \\
  --weight checkpoints/sd_xl_base_1.0_ms.ckpt \\
  --data_path /data/images/ \\
  --save_path_with_time False \\
  --cache_latent True \\
  --cache_text_embedding True \\
  --cache_path ./cache_data"""


def words(line: str) -> list[str]:
    return shlex.split(line.replace("\\\n", " "), comments=True)


def translated(line: str) -> Translation:
    """As `translate` reads it, and proved to be a recipe."""
    return foreign.translate("mindone-sdxl", words(line), ALONE)


def table(path: Path, *servers: tuple[str, int]) -> Path:
    """A rank table of servers with so many cards each."""
    listed, rank = [], 0
    for address, cards in servers:
        devices = [{"device_id": str(i), "device_ip": f"192.168.{i}.1", "rank_id": str(rank + i)} for i in range(cards)]
        listed.append({"server_id": address, "device": devices, "host_nic_ip": "reserve"})
        rank += cards
    tree = {"version": "1.0", "server_count": str(len(servers)), "server_list": listed, "status": "completed"}
    path.write_text(json.dumps(tree))
    return path


def test_one_device_trains_as_documented() -> None:
    translation = translated(SINGLE)
    assert (translation.command, translation.lines) == ("train", ())
    assert translation.settings["model"]["path"] == "checkpoints/sd_xl_base_1.0_ms.ckpt"
    assert translation.settings["data"]["path"] == "/data/images/"


def test_mpirun_becomes_an_equivalent_torchrun_command() -> None:
    translation = translated(MPI)
    [(server, line)] = translation.lines
    assert server == ""
    start, _, flags = line.partition(" -- ")
    assert start == "torchrun --nproc-per-node 8 -m mezzotint train --as mindone-sdxl"
    assert words(flags) == words(MPI.partition("train.py ")[2])
    typed = DIALECT.translate(words(flags), Launched(8, None, "torchrun"))
    assert typed.settings == translation.settings
    assert translation.settings["data"]["batch_size"] == 8
    run = translation.settings["run"]
    assert (run["memory_limit"], run["weight_dtype"]) == ("59GB", "same")
    with pytest.raises(RecipeError, match="type: torchrun --nproc-per-node 8 -m mezzotint train --as mindone-sdxl"):
        DIALECT.translate(words(MPI), ALONE)


def test_script_on_one_server_becomes_one_command(tmp_path: Path) -> None:
    ranks = table(tmp_path / "hccl_8p.json", ("10.0.0.1", 8))
    translation = translated(f"bash {PLAIN} {ranks} 0 8 8 /data/images/")
    [(server, line)] = translation.lines
    assert server == ""
    assert line == (
        "torchrun --nproc-per-node 8 -m mezzotint train --as mindone-sdxl -- --config "
        "configs/training/sd_xl_base_finetune_910b.yaml --weight checkpoints/sd_xl_base_1.0_ms.ckpt "
        "--max_device_memory 59GB --is_parallel True --data_path /data/images/"
    )


@pytest.mark.parametrize("server", [1, 2])
def test_script_on_two_servers_becomes_two_commands(tmp_path: Path, server: int) -> None:
    ranks = table(tmp_path / "hccl_16p.json", ("10.0.0.1", 8), ("10.0.0.2", 8))
    place = {1: "0 8 16", 2: "8 16 16"}[server]
    line = f"bash {PLAIN} {ranks} {place} /data/images/ # run on server {server}"
    translation = translated(line)
    for number, (address, typed) in enumerate(translation.lines):
        assert address == f"10.0.0.{number + 1}"
        assert typed.startswith(
            f"torchrun --nnodes 2 --master-addr 10.0.0.1 --master-port 29500 --node-rank {number} --nproc-per-node 8 "
            "-m mezzotint train --as mindone-sdxl -- --config "
        )
    assert translation.settings["data"]["batch_size"] == 16
    message = rf"type on server {server} of 2, 10\.0\.0\.{server}: torchrun .*--node-rank "
    with pytest.raises(RecipeError, match=message):
        DIALECT.translate(words(line), ALONE)


def test_missing_rank_table_leaves_placeholders_for_addresses() -> None:
    translation = translated(f"bash {PLAIN} /path_to/hccl_16p.json 8 16 16 /data/images/")
    assert [server for server, _ in translation.lines] == ["ADDRESS_1", "ADDRESS_2"]
    assert all("--master-addr ADDRESS_1" in line for _, line in translation.lines)
    assert any("there is no rank table /path_to/hccl_16p.json here; replace ADDRESS_1" in str(note)
               for note in translation.notes)  # fmt: skip


def test_cache_is_filled_by_one_or_several_processes() -> None:
    translation = translated(CACHE)
    assert translation.command == "cache"
    cache = translation.settings["data"]["cache"]
    assert (cache["latents"], cache["text"], cache["path"]) == (True, True, "./cache_data")
    five = translated("bash scripts/cache_data.sh /path_to/hccl_8p.json 0 8 8 /data/images/  # cache data")
    assert five.command == "cache"
    [(_, line)] = five.lines
    assert line.startswith("torchrun --nproc-per-node 8 -m mezzotint cache --as mindone-sdxl -- ")
    assert five.settings["data"]["cache"]["path"] == "./cache_data"
    six = translated("bash scripts/cache_data.sh /path_to/hccl_8p.json 0 8 8 /data/images/ /disk/cached")
    assert six.settings["data"]["cache"]["path"] == "/disk/cached"


def test_documented_command_trains_on_the_existing_cache(tmp_path: Path) -> None:
    assert translated(HERE).settings["data"]["cache"]["latents"] is False
    (tmp_path / "cache_data/latents/abc").mkdir(parents=True)
    assert translated(HERE).settings["data"]["cache"]["latents"] is False, "an empty folder is none"
    (tmp_path / "cache_data/latents/abc/layout.json").write_text("{}")
    translation = translated(HERE)
    data = translation.settings["data"]
    assert (data["cache"]["latents"], data["cache"]["text"], data["path"]) == (True, True, "data")
    assert "./cache_data is a cache of Mezzotint and is used" in "\n".join(map(str, translation.notes))
    [(_, typed)] = translation.lines
    assert "--cache_latent True --cache_text_embedding True" in typed


def test_mindone_cache_of_the_same_data_is_trained_on() -> None:
    Path("data").mkdir()
    Path("data/img_txt.csv").write_text("dir,text\nfolder/a.b.jpg,one\n")
    Path("cache_data/latent_cache").mkdir(parents=True)
    Path("cache_data/latent_cache/other.npy").touch()
    translation = translated(HERE)
    data = translation.settings["data"]
    assert (data["format"], data["path"]) == ("mindone", "data")
    assert "is a cache of MindONE, but not of data" in "\n".join(map(str, translation.notes))
    Path("cache_data/latent_cache/a.npy").touch()
    data = translated(HERE).settings["data"]
    assert (data["format"], data["path"]) == ("mindone-cache", "./cache_data")


@pytest.mark.parametrize("whose", ["Mezzotint", "MindONE"])
def test_train_command_prints_how_to_train_on_the_cache(tmp_path: Path, whose: str) -> None:
    inside = "latents/abc/layout.json" if whose == "Mezzotint" else "latent_cache/a.npy"
    (tmp_path / "there" / inside).parent.mkdir(parents=True)
    (tmp_path / "there" / inside).touch()
    line = "python train.py --config sd_xl_base_finetune_910b.yaml --data_path data --cache_path there"
    translation = translated(line)
    assert translation.settings["data"]["cache"]["latents"] is False
    output = f"there is a cache of {whose}, which this command does not use; add --cache_latent True"
    assert output in "\n".join(map(str, translation.notes))
    added = translated(f"{line} --cache_latent True --cache_text_embedding True")
    assert "which this command does not use" not in "\n".join(map(str, added.notes))
    assert added.settings["run"]["export"]["trained_file"] == "mindspore"


def test_script_variants_have_their_settings() -> None:
    by_script = {
        name: translated(f"bash scripts/{name} t.json 0 8 8 /data").settings for name in SCRIPTS if "run_" in name
    }
    plain, cached, six, both = (
        by_script[f"run_distribute_vanilla_ft_910b{end}.sh"] for end in ("", "_cache", "_bs6", "_bs6_cache")
    )
    assert [one["data"]["batch_size"] for one in (plain, cached, six, both)] == [8, 8, 48, 48]
    assert [one["data"]["cache"]["latents"] for one in (plain, cached, six, both)] == [False, True, False, True]
    assert [one["data"]["cache"]["text"] for one in (plain, cached, six, both)] == [False, True, False, True]
    assert ["device_prefetch" in one["run"] for one in (plain, cached, six, both)] == [False, True, False, True]
    assert [one["model"]["attention"] for one in (plain, cached, six, both)] == ["auto"] * 4
    assert [one["run"]["weight_dtype"] for one in (plain, cached, six, both)] == ["fp32", "fp32", "same", "same"]
    assert all(one["run"]["memory_limit"] == "59GB" for one in by_script.values())
    assert "vaefix" in six["model"]["path"]


def test_translate_prints_the_commands_before_the_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mezzotint.cli import main

    ranks = table(tmp_path / "hccl_16p.json", ("10.0.0.1", 8), ("10.0.0.2", 8))
    line = words(f"bash {PLAIN} {ranks} 0 8 16 /data/images/")
    assert main(["translate", "--as", "mindone-sdxl", "--", *line]) == 0
    output = capsys.readouterr().out
    assert "# start it on 10.0.0.1 with\n#   torchrun --nnodes 2 " in output
    assert "# start it on 10.0.0.2 with\n#   torchrun --nnodes 2 " in output
    assert "batch_size: 16" in output
    path = tmp_path / "recipe.yaml"
    path.write_text(output)
    assert main(["train", "--as", "mindone-sdxl", "--", *line]) == 2
    assert "type on server 1 of 2, 10.0.0.1: torchrun --nnodes 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("t.json 0 8 8", "takes TABLE START END WORLD DATA, got 4 arguments"),
        ("t.json 0 8 8 /data more", "got 6 arguments"),
        ("t.json zero 8 8 /data", "must be integers, got zero 8 8"),
        ("t.json 8 8 8 /data", "START to END are the ranks"),
        ("t.json 0 8 12 /data", "START to END are the ranks"),
        ("{wrong} 0 8 8 /data", "has 16 cards, but WORLD is 8"),
        ("{uneven} 0 8 16 /data", "has servers with different numbers of cards"),
        ("{broken} 0 8 8 /data", "is not a rank table"),
        ("{gap} 0 8 8 /data", "its ranks are not consecutive from 0"),
    ],
)
def test_invalid_arguments_are_reported(tmp_path: Path, arguments: str, message: str) -> None:
    gap = table(tmp_path / "gap.json", ("a", 4), ("b", 4))
    tree = json.loads(gap.read_text())
    tree["server_list"] = tree["server_list"][1:]
    gap.write_text(json.dumps(tree))
    (tmp_path / "broken.json").write_text("{")
    named: dict[str, Any] = {
        "wrong": table(tmp_path / "wrong.json", ("a", 8), ("b", 8)),
        "uneven": table(tmp_path / "uneven.json", ("a", 4), ("b", 12)),
        "broken": tmp_path / "broken.json",
        "gap": gap,
    }
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(words(f"bash {PLAIN} {arguments.format(**named)}"), ALONE)
    assert {problem.code for problem in caught.value.problems} == {"E1084"}
    assert message in str(caught.value)


def test_other_scripts_and_hosts_are_refused() -> None:
    with pytest.raises(
        RecipeError, match=r"run_infer\.sh +E1084 is not a script of the documents; known scripts: run_"
    ):
        DIALECT.translate(words("bash scripts/run_infer.sh a 0 8 8 b"), ALONE)
    with pytest.raises(RecipeError, match="lists hosts"):
        DIALECT.translate(words(MPI.replace("-n 8", "-n 16 --hostfile hosts")), ALONE)


def test_msrun_is_translated() -> None:
    line = "msrun --worker_num=16 --local_worker_num=8 --node_rank=1 --master_addr=10.0.0.1 --master_port=8118 "
    translation = translated(f"{line}{SINGLE.removeprefix('python ')} --is_parallel True")
    assert [server for server, _ in translation.lines] == ["server 1", "server 2"]
    where = "--nnodes 2 --master-addr 10.0.0.1 --master-port 8118 --node-rank 1 --nproc-per-node 8"
    assert where in translation.lines[1][1]
