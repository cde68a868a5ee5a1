"""The doctor's report about this machine, for bug reports: without names of users, hosts or folders and without secrets
of the environment."""

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
from mezzotint.settings.counting import format_bytes, format_count
from mezzotint.tasks.doctor._report import Report

_PACKAGES = (
    "torch", "diffusers", "transformers", "safetensors", "numpy", "pillow", "peft", "torchao", "bitsandbytes",
    "xformers", "accelerate", "av", "ImageHash",
)  # fmt: skip
_OF_TORCH = ("torchao", "bitsandbytes", "xformers", "torchvision", "peft", "accelerate")
_SHOWN_VARIABLES = re.compile(
    r"(OMP|GOMP|KMP|MKL|CUDA|CUBLAS|NCCL|TORCH|PYTORCH|TOKENIZERS|HF_HUB_OFFLINE|LC|LANG)(_|$)"
)
_SECRET = re.compile(r"TOKEN(?!IZERS)|KEY|SECRET|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
_GB = 10**9
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "lustre", "fuse.sshfs", "fuse.s3fs", "ceph", "glusterfs")


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts from which findings about a machine are made. requirements: sentences about packages that do not fit.
    gpus: name and compute capability of each GPU that torch finds. driver: NVIDIA's version, "" without one. cuda:
    torch's version, "" for a CPU build. quota: processors that the container may use, None without a limit. shared:
    bytes of /dev/shm, None without it. disks: free bytes, and kind of file system, of each folder."""

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
    """The report about this machine. cache: the folder of caches."""
    machine = _inspect(environment, cache)
    return Report(tuple(_describe(machine)), in_order(findings(machine)))


def _inspect(environment: Mapping[str, str], cache: Path) -> Machine:
    gpus = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            gpus.append((f"{gpu.name}, {format_bytes(gpu.total_memory)}", (gpu.major, gpu.minor)))
    shared = Path("/dev/shm")
    folders = {"here": Path.cwd(), "cache": cache, "temporary": Path(tempfile.gettempdir())}
    return Machine(
        requirements=tuple(unmet_requirements()),
        gpus=tuple(gpus),
        driver=_driver(),
        cuda=str(torch.version.cuda or torch.version.hip or ""),
        processors=len(os.sched_getaffinity(0)),
        quota=_quota(),
        threads=torch.get_num_threads(),
        memory=free_memory(),
        shared=shutil.disk_usage(shared).total if shared.is_dir() else None,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        disks={name: _disk(path) for name, path in folders.items()},
        encoding=sys.getfilesystemencoding(),
        environment=dict(environment),
        is_optimized=sys.flags.optimize > 0,
    )


def unmet_requirements() -> Iterator[str]:
    """A sentence for each unmet requirement of Mezzotint, and of packages that require a version of torch."""
    for package, of_torch in (("mezzotint", False), *((name, True) for name in _OF_TORCH)):
        with suppress(importlib.metadata.PackageNotFoundError):
            for needed in map(Requirement, importlib.metadata.requires(package) or ()):
                marker = needed.marker
                if of_torch and (needed.name != "torch" or (marker is not None and not marker.evaluate())):
                    continue
                version = _version(needed.name)
                is_optional = marker is not None and "extra" in str(marker)
                if version is None and not is_optional and (marker is None or marker.evaluate()):
                    yield f"{package} needs {needed.name}{needed.specifier}, which is not installed"
                elif version is not None and not needed.specifier.contains(version, prereleases=True):
                    yield f"{package} needs {needed.name}{needed.specifier}, but {version} is installed"


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
    """Free bytes at a path, or at its nearest existing parent folder, and the kind of its file system."""
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists()).resolve()
    kinds = {}
    with suppress(OSError, ValueError):
        for line in outside.read_text(Path("/proc/self/mounts")).splitlines():
            _, mount, file_system = line.split()[:3]
            kinds[Path(mount.encode().decode("unicode_escape"))] = file_system
    kind = next((kinds[folder] for folder in (existing, *existing.parents) if folder in kinds), "")
    return shutil.disk_usage(existing).free, kind


def _describe(machine: Machine) -> Iterator[tuple[str, str]]:
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
    yield "driver", machine.driver or "no NVIDIA driver"
    if machine.gpus:
        yield "cudnn", str(torch.backends.cudnn.version())
    quota = "" if machine.quota is None else f", limited to {machine.quota:g}"
    threads = f"torch threads: {machine.threads}"
    yield "processors", f"{machine.processors} of {os.cpu_count()}{quota}; {threads}"
    yield "memory", f"{format_bytes(machine.memory)} free" if machine.memory is not None else "unknown"
    yield (
        "disk",
        "; ".join(f"{name} {format_bytes(free)} free ({kind})" for name, (free, kind) in machine.disks.items()),
    )
    yield "shared", "none" if machine.shared is None else f"{format_bytes(machine.shared)} of shared memory"
    yield "open files", f"{machine.open_files:,} at most"
    yield "locale", f"files {machine.encoding}, text {locale.getpreferredencoding(False)}"
    yield "variables", ", ".join(public_variables(machine.environment)) or "none"


def public_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """`NAME=value` of the variables that affect how libraries compute; the values of paths and addresses are replaced.
    Other variables are left out."""
    for name, value in sorted(environment.items()):
        if _SHOWN_VARIABLES.match(name) and not _SECRET.search(name):
            yield f"{name}={'PATH' if set(value) & set('/@~') else value[:80]}"


def findings(machine: Machine) -> Iterator[Finding]:
    """Findings about known problems of such a machine."""
    for name, status, sentence, advice in _rows(machine):
        yield Finding(name, status, 1, sentence, advice)


_Row = tuple[str, Status, str, str]


def _rows(machine: Machine) -> Iterator[_Row]:
    for sentence in machine.requirements:
        yield "requirement", "mend", sentence, "pip install 'mezzotint' again, or install the required version"
    yield from _of_gpus(machine)
    yield from _of_threads(machine)
    yield from _of_disks(machine.disks.items())
    if machine.memory is not None and machine.memory < 4 * _GB:
        sentence = f"only {format_bytes(machine.memory)} of memory are free"
        yield "memory", "look", sentence, "close other programs; data.workers=0 needs less"
    if machine.shared is not None and machine.shared < _GB:
        sentence = f"/dev/shm, which loader workers use for batches, has only {format_bytes(machine.shared)}"
        yield "shared-memory", "look", sentence, "start the container with --shm-size=8g, or set data.workers=0"
    if machine.open_files < 1024:
        sentence = f"a process may open only {machine.open_files} files"
        yield "open-files", "look", sentence, "run ulimit -n 4096 before training"
    if machine.encoding.lower() not in ("utf-8", "utf8"):
        sentence = f"file names are decoded as {machine.encoding}, so files with other names may not be found"
        yield "file-names", "mend", sentence, "set LANG=C.UTF-8, or PYTHONUTF8=1"
    if machine.is_optimized:
        yield "optimized", "look", "Python runs with -O, without assertions", "remove -O and PYTHONOPTIMIZE"


def _of_gpus(machine: Machine) -> Iterator[_Row]:
    if machine.driver and not machine.gpus:
        if machine.cuda:
            sentence = (
                f"torch is built for CUDA {machine.cuda} but finds no GPU, although a driver ({machine.driver}) is "
                "installed"
            )
            advice = "check nvidia-smi and CUDA_VISIBLE_DEVICES; a newer CUDA needs a newer driver"
            yield "gpu-unseen", "mend", sentence, advice
        else:
            sentence = "a GPU driver is installed, but torch is a CPU-only build"
            yield "cpu-torch", "mend", sentence, "install torch for CUDA, see pytorch.org"
    for name, capability in machine.gpus:
        if capability < (8, 0):
            sentence = f"{name}: compute capability {capability[0]}.{capability[1]} has no native bf16"
            yield "no-bf16", "know", sentence, "set run.precision=fp16 or fp32"
    if len({name for name, _ in machine.gpus}) > 1:
        sentence = "the GPUs differ: every step waits for the slowest"
        yield "gpus-differ", "look", sentence, "choose GPUs with CUDA_VISIBLE_DEVICES"
    if machine.environment.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        sentence = "CUDA_LAUNCH_BLOCKING is set: the host waits for every kernel"
        yield "launch-blocking", "look", sentence, "unset it, unless you are debugging"


def _of_threads(machine: Machine) -> Iterator[_Row]:
    most = min(machine.processors, machine.quota or machine.processors)
    if machine.threads > max(1, most):
        sentence = f"torch starts {format_count(machine.threads, 'thread')}, but only {most:g} processors are available"
        yield "threads", "look", sentence, f"set OMP_NUM_THREADS={max(1, int(most))}"
    if machine.environment.get("KMP_DUPLICATE_LIB_OK", "").upper() in ("TRUE", "1"):
        sentence = "KMP_DUPLICATE_LIB_OK allows two OpenMP libraries in one process, which may give wrong results"
        yield "two-openmp", "look", sentence, "unset it, and install torch and numpy from one source"


def _of_disks(disks: Iterable[tuple[str, tuple[int, str]]]) -> Iterator[_Row]:
    for name, (free, kind) in disks:
        if free < 10 * _GB:
            status: Status = "mend" if free < _GB else "look"
            sentence = f"only {format_bytes(free)} are free on the disk of: {name}"
            yield "disk", status, sentence, "make room, or set run.folder and data.cache.path to another disk"
        if kind in _NETWORK and name != "temporary":
            sentence = f"the disk of: {name} is on the network ({kind}), where locks and syncs may be unreliable"
            yield "network-disk", "look", sentence, "fine for images; keep runs and caches on a local disk"
