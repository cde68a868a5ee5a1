"""The launcher and the script at the start of a pasted command: `python train.py …`, `accelerate launch --multi_gpu
train.py …`, `torchrun --nproc-per-node 8 train.py …`, `mpirun -n 8 python train.py …`, `msrun --worker_num=8 …`.

For one process they are dropped, except for the precision. For several processes the error contains the torchrun
command to type, since one process cannot become several.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.kit import foreign, setting_files
from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading import yaml_rules

_TORCHRUN = re.compile(r"torch\.distributed\.(run|launch)")
_ACCELERATE = re.compile(r"accelerate(\.commands\.(launch|accelerate_cli))?")
_ENVIRONMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_RENDEZVOUS = {
    "main_process_ip": "master-addr", "master_addr": "master-addr", "main_process_port": "master-port",
    "master_port": "master-port", "machine_rank": "node-rank", "node_rank": "node-rank",
    "rdzv_backend": "rdzv-backend", "rdzv_endpoint": "rdzv-endpoint", "rdzv_id": "rdzv-id",
}  # fmt: skip
"""Rendezvous options: the launcher's names and torchrun's."""

_MPI = frozenset(("mpirun", "mpiexec", "mpirun.openmpi"))
_MPI_HOSTS = ("hostfile", "machinefile", "host", "H", "f")


@dataclass(frozen=True, slots=True)
class Server:
    """A machine of a run: its address and its number of processes."""

    address: str
    cards: int


@dataclass(slots=True)
class ParsedCommand:
    """A command without its launcher. arguments: the flags of the script. tool: "python", "accelerate", "torchrun",
    "mpirun", "msrun", "bash", or "" if the command starts with a flag. processes: per machine, "gpu" for one per
    device. options: the launcher's options. dropped: tokens of the launcher and the script. servers: those of a rank
    table; server_index: the one that the command is for. verb: Mezzotint's command. more_notes: (flag, sentence)."""

    arguments: list[str]
    tool: str = ""
    script: str = ""
    options: dict[str, str] = field(default_factory=dict)
    processes: int | str = 1
    machines: int = 1
    mixed_precision: str | None = None
    cpu: bool = False
    dropped: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    servers: tuple[Server, ...] = ()
    server_index: int = 0
    verb: str = "train"
    more_notes: list[tuple[str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def total_processes(self) -> int | str:
        """The number of processes that the command starts, "gpu" for one per device."""
        return self.processes if isinstance(self.processes, str) else self.processes * self.machines

    def refuse(self, option: str, message: str, remedy: str = "") -> None:
        """Adds a problem of a launcher's option."""
        self.problems.append(Problem(option, message, remedy, "E1019"))

    def check_processes(self, dialect: str, running: int) -> None:
        """Raises RecipeError E1019 if the command starts another number of processes than are running."""
        total = self.total_processes
        if total in (1, running) or (total == "gpu" and running > 1):
            return
        many = "one process per GPU" if total == "gpu" else f"{total} processes"
        count, where = len(self.servers), ""
        if count > 1:
            where = f" on server {self.server_index + 1} of {count}, {self.servers[self.server_index].address}"
        message = f"the command starts {many}, and {running} {'is' if running == 1 else 'are'} running"
        raise RecipeError(f"{message}; type{where}: {self.torchrun(dialect)}", code="E1019")

    def refuse_other_trainers(self, dialect: str, scripts: Collection[str], config: str) -> None:
        """Raises RecipeError E1018 for a script of another trainer, E1017 for a settings file without a script.
        scripts: those of the dialect. config: its option for a settings file, "" if it has none."""
        other = "" if self.script in scripts else foreign.find_dialect(self.script, dialect)
        if other:
            raise RecipeError(f"{self.script} is a script of another trainer; write --as {other}", code="E1018")
        first = self.arguments[0] if self.arguments and not self.script else ""
        if setting_files.has_known_suffix(first):
            message = setting_files.describe(first)
            remedy = f"write SCRIPT --{config} {first}" if config else "write it after its flag"
            problem = Problem(first, message or "is a file without a flag", "" if message else remedy, "E1017")
            raise RecipeError(f"the line of {dialect}", problems=[problem])

    def lines(self, dialect: str) -> list[tuple[str, str]]:
        """(server, command) for each server; the server is "" if there is only one."""
        if self.machines == 1:
            return [("", self.torchrun(dialect))]
        names = [server.address for server in self.servers] or [f"server {n + 1}" for n in range(self.machines)]
        options = ({**self.options, "node_rank": str(rank)} for rank in range(len(names)))
        return [(name, replace(self, options=one).torchrun(dialect)) for name, one in zip(names, options, strict=True)]

    def torchrun(self, dialect: str) -> str:
        """The torchrun command that starts as many processes."""
        where = ["--nnodes", str(self.machines)] if self.machines > 1 else []
        for key, option in _RENDEZVOUS.items():
            is_unneeded = self.machines == 1 and key in ("machine_rank", "node_rank", "rdzv_backend")
            if key in self.options and not is_unneeded and self.options[key]:
                where += [f"--{option}", self.options[key]]
        has_precision = any(one.partition("=")[0] == "--mixed_precision" for one in self.arguments)
        precision = [f"--mixed_precision={self.mixed_precision}"] if self.mixed_precision and not has_precision else []
        arguments = ["torchrun", *where, "--nproc-per-node", str(self.processes), "-m", "mezzotint", self.verb, "--as"]
        return shlex.join([*arguments, dialect, "--", *precision, *self.arguments])

    def notes(self, running: int) -> list[tuple[str, str]]:
        """(flag, sentence) of what is dropped."""
        if not self.tool and not self.script:
            return []
        if self.tool == "bash":
            return [("", f"`{shlex.join(self.dropped)}` is read as {shlex.join(self.arguments)}"), *self.more_notes]
        why = "it starts one process" if running == 1 else f"{running} processes are already running"
        of_precision = f"; its precision, {self.mixed_precision}, is kept" if self.mixed_precision else ""
        return [("", f"`{shlex.join(self.dropped)}` at the start of the command is dropped: {why}{of_precision}")]


def strip_launcher(arguments: Sequence[str], scripts: Sequence[str]) -> ParsedCommand:
    """Splits launcher and script from a command. A command that starts with a flag has none. scripts: known names."""
    if not arguments or arguments[0].startswith("-"):
        return ParsedCommand(list(arguments))
    script_index = next((index for index, argument in enumerate(arguments) if argument.endswith(".py")), None)
    if script_index is None:
        return ParsedCommand(list(arguments))  # the parser reports the first argument
    before = list(arguments[:script_index])
    command = ParsedCommand(
        list(arguments[script_index + 1 :]),
        script=setting_files.file_name(arguments[script_index]),
        dropped=list(arguments[: script_index + 1]),
    )
    while before and _ENVIRONMENT.fullmatch(before[0]):
        before.pop(0)
    command.tool = _find_tool(before)
    _read_options(command, before)
    return command


def _find_tool(arguments: Sequence[str]) -> str:
    names = {setting_files.file_name(argument) for argument in arguments}
    if "accelerate-launch" in names or any(map(_ACCELERATE.fullmatch, names)):
        return "accelerate"
    if _MPI & names:
        return "mpirun"
    if "msrun" in names:
        return "msrun"
    return "torchrun" if "torchrun" in names or any(map(_TORCHRUN.fullmatch, names)) else "python"


def _read_options(command: ParsedCommand, launcher_arguments: Sequence[str]) -> None:
    options = _parse_options(launcher_arguments)
    match command.tool:
        case "python":
            return
        case "mpirun":
            _read_mpi(command, launcher_arguments)
            return
        case "msrun":
            _read_msrun(command, options)
            return
    if command.tool == "accelerate" and options.get("config_file"):
        options = _read_config(command, options["config_file"]) | options
    command.options = options
    per_node, total = options.get("nproc_per_node"), options.get("num_processes")
    command.machines = _parse_count(
        command, "num_machines", options.get("num_machines") or options.get("nnodes") or "1"
    )
    if command.tool == "torchrun" and per_node in ("gpu", "auto"):
        command.processes = per_node
    elif command.tool == "torchrun":
        command.processes = _parse_count(command, "nproc_per_node", per_node or "1")
    elif total:
        command.processes = max(1, _parse_count(command, "num_processes", total) // command.machines)
    elif "multi_gpu" in options:
        command.processes = "gpu"
    word = {"False": "no", "false": "no"}.get(options.get("mixed_precision", ""), options.get("mixed_precision"))
    if word in (None, "no", "fp16", "bf16"):
        command.mixed_precision = word
    else:
        command.refuse("--mixed_precision", f"takes no, fp16 or bf16, got {word!r}")
    command.cpu = options.get("cpu", options.get("use_cpu", "false")).lower() in ("", "true")


def _read_mpi(command: ParsedCommand, arguments: Sequence[str]) -> None:
    """`mpirun -n 8`: 8 processes on this machine. With a list of hosts, torchrun must be started on each of them."""
    for argument, following in pairwise([*arguments, ""]):
        name, _, value = argument.lstrip("-").partition("=")
        if argument.startswith("-") and name in ("n", "np", "c"):
            command.processes = _parse_count(command, name, value or following)
        elif argument.startswith("-") and name in _MPI_HOSTS:
            message = f"lists hosts ({value or following}), which torchrun does not start"
            remedy = "start torchrun on each: --nnodes N --node-rank R --nproc-per-node CARDS --master-addr FIRST"
            command.refuse(argument.partition("=")[0], message, remedy)


def _read_msrun(command: ParsedCommand, options: dict[str, str]) -> None:
    """`msrun --worker_num=16 --local_worker_num=8 --node_rank=0 --master_addr=…`."""
    world = _parse_count(command, "worker_num", options.get("worker_num", "8"))
    local = _parse_count(command, "local_worker_num", options.get("local_worker_num", str(world)))
    command.processes, command.machines, command.options = local, max(1, world // local), options
    if world % local:
        command.refuse("--worker_num", f"must be a multiple of --local_worker_num, got {world} and {local}")


def _parse_options(arguments: Sequence[str]) -> dict[str, str]:
    """The launcher's options, "" for a switch; hyphens are replaced by underscores."""
    options: dict[str, str] = {}
    for argument, following in pairwise([*arguments, "-"]):
        if argument.startswith("--"):
            name, sign, value = argument[2:].partition("=")
            options[name.replace("-", "_")] = value if sign else ("" if following.startswith("-") else following)
    return options


def _read_config(command: ParsedCommand, name: str) -> dict[str, str]:
    """The values of the launcher's configuration file, as texts."""
    called = f"the launcher's configuration {name}"
    try:
        tree: dict[str, Any] = yaml_rules.load(outside.read_text(Path(name).expanduser()), name).tree
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        remedy = "create it with `accelerate config --config_file`, or give --num_processes instead"
        command.refuse("--config_file", f"{called} cannot be read: {reason}", remedy)
        return {}
    except RecipeError as error:
        command.refuse("--config_file", f"{called} is not YAML", error.message)
        return {}
    plain = {key: value for key, value in tree.items() if isinstance(value, (str, int, bool))}
    kind = str(plain.pop("distributed_type", "NO")).upper()
    if kind not in ("NO", "MULTI_GPU", "MULTI_CPU"):
        message = f"the configuration {name} asks for {kind}, which is not supported"
        command.refuse("--config_file", message, "use MULTI_GPU or NO")
    if kind == "NO":
        plain.pop("num_processes", None)
    return {key: str(value) for key, value in plain.items()}


def _parse_count(command: ParsedCommand, option: str, text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    command.refuse(f"--{option}", f"must be a whole number above 0, got {text!r}")
    return 1
