"""What the doctor tells of this machine: to be pasted into a report, without names of people, hosts or folders and
without what the environment keeps secret."""

from __future__ import annotations

import importlib.metadata
import locale
import os
import platform
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from packaging.requirements import Requirement

import mezzotint
from mezzotint import outside
from mezzotint.data.findings.finding import Finding, Status, in_order
from mezzotint.runtimes.base import free_memory
from mezzotint.settings.counting import counted, size
from mezzotint.tasks.doctor._report import Report

_PACKAGES = (
    "torch", "diffusers", "transformers", "safetensors", "numpy", "pillow", "peft", "torchao", "bitsandbytes",
    "xformers", "accelerate", "av", "ImageHash",
)  # fmt: skip
_OF_TORCH = ("torchao", "bitsandbytes", "xformers", "torchvision", "peft", "accelerate")
_SHOWN = re.compile(r"(OMP|GOMP|KMP|MKL|CUDA|CUBLAS|NCCL|TORCH|PYTORCH|TOKENIZERS|HF_HUB_OFFLINE|LC|LANG)(_|$)")
_SECRET = re.compile(r"TOKEN(?!IZERS)|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_GB = 10**9
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "lustre", "fuse.sshfs", "fuse.s3fs", "ceph", "glusterfs")


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known bad is told from these alone. requirements: sentences about packages that do not fit. gpus: name
    and compute capability of each that torch sees. driver: of NVIDIA, "" without one. cuda: torch's, "" for a build
    without. quota: processors that the container may use, None without a limit. shared: bytes of /dev/shm, None where
    there is none. disks: free bytes, and kind of file system, of each place."""

    requirements: tuple[str, ...]
    gpus: tuple[tuple[str, tuple[int, int]], ...]
    driver: str
    cuda: str
    processors: int
    quota: float | None
    threads: int
    memory: int | None
    shared: int | None
    open_files: int
    disks: Mapping[str, tuple[int, str]]
    encoding: str
    environment: Mapping[str, str]
    is_optimized: bool


def report(environment: Mapping[str, str], cache: Path) -> Report:
    """This machine as it is. cache: the folder of caches."""
    machine = _seen(environment, cache)
    return Report(tuple(_about(machine)), in_order(known_bad(machine)))


def _seen(environment: Mapping[str, str], cache: Path) -> Machine:
    gpus = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            gpus.append((f"{gpu.name}, {size(gpu.total_memory)}", (gpu.major, gpu.minor)))
    shared = Path("/dev/shm")
    places = {"here": Path.cwd(), "cache": cache, "temporary": Path(tempfile.gettempdir())}
    return Machine(
        requirements=tuple(unmet()),
        gpus=tuple(gpus),
        driver=_driver(),
        cuda=str(torch.version.cuda or torch.version.hip or ""),
        processors=len(os.sched_getaffinity(0)),
        quota=_quota(),
        threads=torch.get_num_threads(),
        memory=free_memory(),
        shared=shutil.disk_usage(shared).total if shared.is_dir() else None,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        disks={name: _disk(path) for name, path in places.items()},
        encoding=sys.getfilesystemencoding(),
        environment=dict(environment),
        is_optimized=sys.flags.optimize > 0,
    )


def unmet() -> Iterator[str]:
    """A sentence for each installed package that another one does not go with: what Mezzotint asks for, and what asks
    for a torch."""
    for package, of_torch in (("mezzotint", False), *((name, True) for name in _OF_TORCH)):
        with suppress(importlib.metadata.PackageNotFoundError):
            asks = map(Requirement, importlib.metadata.requires(package) or ())
            for one in asks:
                if of_torch and (one.name != "torch" or (one.marker is not None and not one.marker.evaluate())):
                    continue
                version = _version(one.name)
                is_optional = one.marker is not None and "extra" in str(one.marker)
                if version is None and not is_optional and (one.marker is None or one.marker.evaluate()):
                    yield f"{package} needs {one.name}{one.specifier}, which is not installed"
                elif version is not None and not one.specifier.contains(version, prereleases=True):
                    yield f"{package} needs {one.name}{one.specifier}, and {version} is installed"


def _version(package: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def _driver() -> str:
    with suppress(OSError, ValueError):
        text = outside.read_text(Path("/proc/driver/nvidia/version"))
        version = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", text)
        return version[0] if version else "there"
    return ""


def _quota() -> float | None:
    with suppress(OSError, ValueError):
        most, period = outside.read_text(Path("/sys/fs/cgroup/cpu.max")).split()
        return int(most) / int(period)
    return None


def _disk(path: Path) -> tuple[int, str]:
    """Free bytes at a path, or at the nearest folder above that is there, and the kind of its file system."""
    there = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists()).resolve()
    kinds = {}
    with suppress(OSError, ValueError):
        for line in outside.read_text(Path("/proc/self/mounts")).splitlines():
            _, mount, file_system = line.split()[:3]
            kinds[Path(mount.encode().decode("unicode_escape"))] = file_system
    kind = next((kinds[folder] for folder in (there, *there.parents) if folder in kinds), "")
    return shutil.disk_usage(there).free, kind


def _about(machine: Machine) -> Iterator[tuple[str, str]]:
    yield "mezzotint", mezzotint.__version__
    yield "python", f"{platform.python_version()} ({platform.python_implementation()})"
    yield "system", f"{platform.system()} {platform.release()} {platform.machine()}, {' '.join(platform.libc_ver())}"
    versions = [(package, _version(package)) for package in _PACKAGES]
    yield "packages", ", ".join(f"{package} {version}" for package, version in versions if version is not None)
    yield "absent", ", ".join(package for package, version in versions if version is None) or "none"
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    built = [
        f"CUDA {machine.cuda}" if machine.cuda else "for the CPU", f"blas {blas[1] if blas else 'unknown'}",
        str(torch.backends.cpu.get_cpu_capability()), f"commit {str(torch.version.git_version)[:10]}",
    ]  # fmt: skip
    yield "torch", ", ".join(built)
    for number, (name, (major, minor)) in enumerate(machine.gpus):
        yield f"gpu {number}", f"{name}, capability {major}.{minor}"
    yield "driver", machine.driver or "none of NVIDIA"
    if machine.gpus:
        yield "cudnn", str(torch.backends.cudnn.version())
    quota = "" if machine.quota is None else f", limited to {machine.quota:g}"
    threads = f"threads of torch: {machine.threads}"
    yield "processors", f"{machine.processors} of {os.cpu_count()}{quota}; {threads}"
    yield "memory", f"{size(machine.memory)} free" if machine.memory is not None else "unknown"
    yield "disk", "; ".join(f"{name} {size(free)} free ({kind})" for name, (free, kind) in machine.disks.items())
    yield "shared", "none" if machine.shared is None else f"{size(machine.shared)} of shared memory"
    yield "open files", f"{machine.open_files:,} at most"
    yield "locale", f"files {machine.encoding}, text {locale.getpreferredencoding(False)}"
    yield "variables", ", ".join(shown(machine.environment)) or "none"


def shown(environment: Mapping[str, str]) -> Iterator[str]:
    """`NAME=value` of the variables that decide how libraries compute. Of others not even the names; of paths and
    addresses not what they are."""
    for name, value in sorted(environment.items()):
        if _SHOWN.match(name) and not _SECRET.search(name):
            yield f"{name}={'PATH' if set(value) & set('/@~') else value[:80]}"


def known_bad(machine: Machine) -> Iterator[Finding]:
    """What is known not to work, or not well, on such a machine."""
    for name, status, sentence, advice in _rows(machine):
        yield Finding(name, status, 1, sentence, advice)


_Row = tuple[str, Status, str, str]


def _rows(machine: Machine) -> Iterator[_Row]:
    for sentence in machine.requirements:
        yield "requirement", "mend", sentence, "pip install 'mezzotint' again, or the version that is asked for"
    yield from _of_gpus(machine)
    yield from _of_threads(machine)
    yield from _of_disks(machine.disks.items())
    if machine.memory is not None and machine.memory < 4 * _GB:
        sentence = f"{size(machine.memory)} of memory are free"
        yield "memory", "look", sentence, "close other programs; data.workers=0 takes less"
    if machine.shared is not None and machine.shared < _GB:
        sentence = f"/dev/shm holds {size(machine.shared)}, through which workers hand over their batches"
        yield "shared-memory", "look", sentence, "start the container with --shm-size=8g, or set data.workers=0"
    if machine.open_files < 1024:
        sentence = f"a process may open {machine.open_files} files"
        yield "open-files", "look", sentence, "ulimit -n 4096 before the run"
    if machine.encoding.lower() not in ("utf-8", "utf8"):
        sentence = f"names of files are read as {machine.encoding}, so that others' pictures may not be met by name"
        yield "file-names", "mend", sentence, "set LANG=C.UTF-8, or PYTHONUTF8=1"
    if machine.is_optimized:
        yield "optimized", "look", "Python runs with -O, without its assertions", "leave out -O and PYTHONOPTIMIZE"


def _of_gpus(machine: Machine) -> Iterator[_Row]:
    if machine.driver and not machine.gpus:
        if machine.cuda:
            sentence = (
                f"torch is built for CUDA {machine.cuda} and sees no GPU, though a driver ({machine.driver}) is there"
            )
            advice = "look at nvidia-smi and CUDA_VISIBLE_DEVICES; a newer CUDA needs a newer driver"
            yield "gpu-unseen", "mend", sentence, advice
        else:
            sentence = "a GPU's driver is there, and this torch is built for the CPU alone"
            yield "cpu-torch", "mend", sentence, "install torch for CUDA, as pytorch.org says"
    for name, capability in machine.gpus:
        if capability < (8, 0):
            sentence = f"{name}: capability {capability[0]}.{capability[1]} has no bf16 of its own"
            yield "no-bf16", "know", sentence, "run.precision=fp16, or fp32"
    if len({name for name, _ in machine.gpus}) > 1:
        yield "gpus-differ", "look", "the GPUs differ: every step waits for the slowest", "CUDA_VISIBLE_DEVICES picks"
    if machine.environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        sentence = "CUDA_LAUNCH_BLOCKING is set: the host waits for every kernel"
        yield "launch-blocking", "look", sentence, "unset it, unless an error is being looked for"


def _of_threads(machine: Machine) -> Iterator[_Row]:
    most = min(machine.processors, machine.quota or machine.processors)
    if machine.threads > max(1, most):
        sentence = f"torch starts {counted(machine.threads, 'thread')}, and {most:g} processors may be used"
        yield "threads", "look", sentence, f"set OMP_NUM_THREADS={max(1, int(most))}"
    if machine.environment.get("KMP_DUPLICATE_LIB_OK", "").upper() in ("TRUE", "1"):
        sentence = "KMP_DUPLICATE_LIB_OK lets two OpenMP libraries run in one process, which may give wrong numbers"
        yield "two-openmp", "look", sentence, "unset it, and install torch and numpy from one source"


def _of_disks(disks: Iterable[tuple[str, tuple[int, str]]]) -> Iterator[_Row]:
    for name, (free, kind) in disks:
        if free < 10 * _GB:
            status: Status = "mend" if free < _GB else "look"
            sentence = f"{size(free)} are free on the disk of: {name}"
            yield "disk", status, sentence, "make room, or put run.folder and data.cache.path elsewhere"
        if kind in _NETWORK and name != "temporary":
            sentence = f"the disk of: {name} is on the network ({kind}), where locks and syncs may not hold"
            yield "network-disk", "look", sentence, "fine for pictures; keep runs and caches on a disk of this machine"
