"""The shell scripts of MindONE's SDXL documents, which start one process per card from a rank table:

    bash scripts/run_distribute_vanilla_ft_910b.sh TABLE START END WORLD DATA
    bash scripts/cache_data.sh TABLE START END WORLD DATA [CACHE]

TABLE lists servers and cards; START to END are the ranks of this server, of WORLD. They are translated to the flags of
`train.py` in the script, and one torchrun command for each server.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.launchers import ParsedCommand, Server
from mezzotint.compat.mindone._data import CACHE_FLAGS, cache_holds, cached_by
from mezzotint.compat.mindone._rows import CACHE, WEIGHT
from mezzotint.errors import Problem

_PLAIN = f"--config configs/training/sd_xl_base_finetune_910b.yaml --weight {WEIGHT}"
_SIX = (
    "--config configs/training/sd_xl_base_finetune_910b_fa.yaml --weight checkpoints/sd_xl_base_1.0_vaefix_ms.ckpt "
    "--per_batch_size 6 --param_fp16 True"
)
_CACHED = f"--data_sink True --sink_size 100 {CACHE_FLAGS}"
_SHARED = "--max_device_memory 59GB --is_parallel True"

SCRIPTS = {
    "run_distribute_vanilla_ft_910b.sh": f"{_PLAIN} {_SHARED}",
    "run_distribute_vanilla_ft_910b_cache.sh": f"{_PLAIN} {_SHARED} {_CACHED}",
    "run_distribute_vanilla_ft_910b_bs6.sh": f"{_SIX} {_SHARED}",
    "run_distribute_vanilla_ft_910b_bs6_cache.sh": f"{_SIX} {_SHARED} {_CACHED}",
    "cache_data.sh": f"{_PLAIN} --is_parallel True --task cache --save_path_with_time False {CACHE_FLAGS}",
}
"""The flags of `train.py` in each script, without the data."""

_FORM = "TABLE START END WORLD DATA"
_SHELLS = frozenset(("bash", "sh"))
_LIMIT = 1_000_000


def expand(arguments: Sequence[str]) -> ParsedCommand | None:
    """Parses a command that starts with one of the scripts into flags and servers; None for any other command.
    `problems` has E1084."""
    rest = list(arguments)
    if rest and rest[0] in _SHELLS:
        rest.pop(0)
    name = setting_files.file_name(rest[0]) if rest else ""
    if not name.endswith(".sh"):
        return None
    command = ParsedCommand([], tool="bash", script="train.py", dropped=list(arguments))
    if name not in SCRIPTS:
        _add_problem(command, name, "is not a script of the documents", f"known scripts: {', '.join(SCRIPTS)}")
        return command
    values = rest[1:]
    most = 6 if "cache" in name else 5
    if not 5 <= len(values) <= most:
        more = " [CACHE]" if most == 6 else ""
        _add_problem(command, name, f"takes {_FORM}{more}, got {len(values)} arguments")
        return command
    table, first, end, world, data = values[:5]
    command.arguments = [*SCRIPTS[name].split(), "--data_path", data]
    if len(values) == 6:
        command.arguments += ["--cache_path", values[5]]
    command.verb = "cache" if name == "cache_data.sh" else "train"
    if "cache" not in name:
        _use_cache(command, data)
    _set_ranks(command, table, (first, end, world))
    return command


def _use_cache(command: ParsedCommand, data: str) -> None:
    """Uses an existing cache of the data: the documents have the same command for training with and without a cache."""
    whose = cached_by(CACHE)
    if not whose or Path(data).expanduser().resolve() == Path(CACHE).resolve():
        return
    if whose == "MindONE" and not cache_holds(CACHE, data):
        note = f"{CACHE} is a cache of MindONE, but not of {data}; give it as DATA to train from it"
    else:
        command.arguments += CACHE_FLAGS.split()
        note = f"{CACHE} is a cache of {whose} and is used; without this folder the images are"
    command.more_notes.append(("cache_path", note))


def _add_problem(command: ParsedCommand, where: str, message: str, remedy: str = "") -> None:
    command.problems.append(Problem(where, message, remedy, "E1084"))


def _set_ranks(command: ParsedCommand, table: str, numbers: tuple[str, str, str]) -> None:
    """Sets the servers and the ranks of this server."""
    if not all(one.isdecimal() for one in numbers):
        _add_problem(command, "START END WORLD", f"must be integers, got {' '.join(numbers)}")
        return
    first, end, world = (int(one) for one in numbers)
    cards = end - first
    if not (0 <= first < end <= world) or world % cards or first % cards:
        message = f"{first} {end} {world}: START to END are the ranks of one server, of WORLD; all servers have as many"
        _add_problem(command, "START END WORLD", message, "for two servers of 8 cards write 0 8 16 and 8 16 16")
        return
    command.processes, command.machines = cards, world // cards
    servers = _read_servers(command, table, cards)
    total = sum(server.cards for server in servers or ())
    if servers is None:
        servers = [Server(f"ADDRESS_{number + 1}", cards) for number in range(command.machines)]
        why = "" if command.machines == 1 else "; replace ADDRESS_1 and others by the servers' addresses"
        command.more_notes.append(("", f"there is no rank table {table} here{why}"))
    elif total != world:
        _add_problem(
            command, table, f"has {total} cards, but WORLD is {world}", "create the table again, or write its number"
        )
        return
    elif any(server.cards != cards for server in servers):
        _add_problem(command, table, "has servers with different numbers of cards", f"each must have {cards}")
        return
    command.servers, command.server_index = tuple(servers), first // cards
    if command.machines > 1:
        command.options = {
            "master_addr": servers[0].address,
            "master_port": "29500",
            "node_rank": str(command.server_index),
        }


def _read_servers(command: ParsedCommand, table: str, cards: int) -> list[Server] | None:
    """The servers of a rank table in the order of their ranks; None if there is no file."""
    path = Path(table).expanduser()
    if not path.is_file():
        return None
    try:
        return _parse_table(outside.parse_json(outside.read_text(path, limit=_LIMIT, encoding="utf-8-sig")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f": {error}" if type(error) is ValueError else ""
        _add_problem(
            command,
            table,
            f"is not a rank table{why}",
            "it must have server_list, of server_id and device with rank_id",
        )
        return [Server("", cards)] * command.machines


def _parse_table(tree: Any) -> list[Server]:
    """Parses a rank table. Raises KeyError, TypeError, ValueError for anything else."""
    ranked: dict[int, Server] = {}
    for server in tree["server_list"]:
        ranks = sorted(int(device["rank_id"]) for device in server["device"])
        if ranks != list(range(ranks[0], ranks[0] + len(ranks))):
            raise ValueError(f"the ranks of {server['server_id']} are not consecutive")
        ranked[ranks[0]] = Server(str(server["server_id"]), len(ranks))
    end = 0
    for first, one in sorted(ranked.items()):
        if first != end:
            raise ValueError("its ranks are not consecutive from 0")
        end += one.cards
    return [ranked[first] for first in sorted(ranked)]
