from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint import durable, fault_injection
from mezzotint.errors import Diverged, StorageError
from mezzotint.runtimes.base import Launch, Share
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.saving import SaveSettings
from mezzotint.training.checkpoints import background_save, state
from mezzotint.training.checkpoints.background_save import PinnedCopies, Saves, Snapshot, best_of, name_best
from support.streams import Line


def tensors(seed: int = 1) -> dict[str, Tensor]:
    """Tensors of several pieces, in channels-last layout, of other dtypes, scalar and empty."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "w/denoiser/a": torch.randn(3, 200_000, generator=generator),
        "w/denoiser/conv": torch.randn(4, 6, 5, 5, generator=generator).to(memory_format=torch.channels_last),
        "ema/denoiser/a": torch.randn(3, 200_000, generator=generator),
        "opt.mean/denoiser/a": torch.randn(3, 200_000, generator=generator).bfloat16(),
        "opt.mean/denoiser/none": torch.zeros(0, 4),
        "opt.applied": torch.tensor(3.0),
    }


def saves(folder: Path, *, keep: int | None = None, said: list[str] | None = None, **settings: Any) -> Saves:
    run = RunSettings(save=SaveSettings(keep=keep, **settings))
    return Saves(folder, Runtime(torch.device("cpu"), Launch(), run), run, (said if said is not None else []).append)


def begin(one: Saves, step: int, content: dict[str, Tensor], *, at_once: bool = False) -> None:
    one.begin(step=step, tensors=content, values={"step": step}, recipe_digest="ab", at_once=at_once)


def save_whole(one: Saves, step: int, content: dict[str, Tensor], *, at_once: bool) -> None:
    begin(one, step, content, at_once=at_once)
    one.end()


def move(content: dict[str, Tensor]) -> None:
    for tensor in content.values():
        tensor.add_(1)


def files_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], threading.Event]]:
    """`gate(point)` makes the thread, not training, wait at a named point until the returned event is set."""
    gates: dict[str, threading.Event] = {}
    main, reach = threading.current_thread(), fault_injection.reach

    def wait_there(point: str) -> None:
        if point in gates and threading.current_thread() is not main:
            assert gates[point].wait(30)
        reach(point)

    monkeypatch.setattr(fault_injection, "reach", wait_there)
    yield lambda point: gates.setdefault(point, threading.Event())
    for event in gates.values():
        event.set()


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("read_before", [0, 1, 4])
def test_copied_values_do_not_depend_on_thread_progress(apart: bool, read_before: int) -> None:
    content = tensors()
    before = {name: tensor.clone() for name, tensor in content.items()}
    pinned = PinnedCopies()
    for _ in range(2):  # the second reuses the memory of the first
        snapshot = Snapshot(content, pinned, copies_all=apart)
        pieces = {name: snapshot.pieces(name) for name in content}
        read = {name: bytearray() for name in content}
        for name in list(content)[:read_before]:
            for piece in pieces[name]:
                read[name] += piece.numpy().tobytes()
        halfway = list(content)[min(read_before, 3)]
        read[halfway] += next(pieces[halfway], torch.empty(0, dtype=torch.uint8)).numpy().tobytes()
        snapshot.hold()
        move(content)
        for name, rest in pieces.items():
            for piece in rest:
                read[name] += piece.numpy().tobytes()
        for name, tensor in before.items():
            assert bytes(read[name]) == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), name
        for name, tensor in content.items():
            tensor.copy_(before[name])
    assert pinned.nbytes == (background_save._BLOCK if apart else 0)


def test_values_already_written_are_not_copied(tmp_path: Path) -> None:
    content = tensors()
    snapshot = Snapshot(content, PinnedCopies())
    for name in content:
        assert sum(len(piece) for piece in snapshot.pieces(name)) == content[name].nbytes
    snapshot.hold()
    assert not snapshot._copies


def test_background_save_writes_the_same_bytes_as_blocking_save(tmp_path: Path, gate: Any) -> None:
    content = tensors()
    begin(saves(tmp_path / "at-once"), 5, content, at_once=True)
    goes_on = gate("checkpoint.file")
    one = saves(tmp_path / "behind")
    begin(one, 5, content)
    assert one.is_writing
    one.hold()
    move(content)
    assert not state.list_checkpoints(tmp_path / "behind")
    goes_on.set()
    one.end()
    assert not one.is_writing
    assert files_of(tmp_path / "behind" / "step-00000005") == files_of(tmp_path / "at-once" / "step-00000005")
    assert len(files_of(tmp_path / "behind" / "step-00000005")) == 5


def test_saved_values_are_those_at_its_start(tmp_path: Path, gate: Any) -> None:
    goes_on, values = gate("checkpoint.file"), {"callbacks": {"seen": [1]}}
    one = saves(tmp_path)
    one.begin(step=1, tensors=tensors(), values=values, recipe_digest="ab", at_once=False)
    values["callbacks"]["seen"].append(2)
    goes_on.set()
    one.end()
    assert state.read(tmp_path / "step-00000001").values == {"callbacks": {"seen": [1]}}


def test_next_save_waits_for_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    under_way, most, reach = [0], [0], fault_injection.reach

    def counted(point: str) -> None:
        under_way[0] += {"checkpoint.begin": 1, "checkpoint.renamed": -1}.get(point, 0)
        most[0] = max(most[0], under_way[0])
        reach(point)

    monkeypatch.setattr(fault_injection, "reach", counted)
    one = saves(tmp_path, keep=2)
    for step in range(1, 5):
        begin(one, step, tensors(step))
        one.hold()
    one.end()
    assert most[0] == 1
    assert [path.name for path in state.list_checkpoints(tmp_path)] == ["step-00000004", "step-00000003"]


@pytest.mark.parametrize("point", ["checkpoint.file", "checkpoint.manifest"])
def test_full_disk_is_reported_at_the_end_and_keeps_older_checkpoint(tmp_path: Path, point: str) -> None:
    one = saves(tmp_path)
    begin(one, 1, tensors(), at_once=True)
    fault_injection.arm(f"{point}@1:enospc")
    begin(one, 2, tensors())
    with pytest.raises(StorageError, match=r"step-00000002: the disk is full") as refused:
        one.end()
    assert refused.value.code == "E1701"
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    begin(one, 3, tensors())
    one.end()
    assert state.newest_valid(tmp_path).path == tmp_path / "step-00000003"


def test_nonfinite_weights_are_reported_like_in_blocking_save(tmp_path: Path) -> None:
    broken = tensors() | {"w/denoiser/b": torch.tensor([1.0, float("inf")])}
    broken["opt.mean/denoiser/a"][0, 0] = float("nan")
    messages = []
    for at_once in (True, False):
        with pytest.raises(Diverged) as raised:
            save_whole(saves(tmp_path), 1, broken, at_once=at_once)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "w/denoiser/b and 0 more tensors" in messages[0]
    assert list(tmp_path.iterdir()) == []


def test_large_finite_values_pass_and_nonfinite_moments_fail(tmp_path: Path) -> None:
    large = {"w/denoiser/a": torch.full((5000,), 3e38), "opt.mean/denoiser/a": torch.full((5000,), 6e4).half()}
    begin(saves(tmp_path), 1, large, at_once=True)
    large["opt.mean/denoiser/a"][3:5] = float("inf")
    with pytest.raises(StorageError, match=r"opt\.mean/denoiser/a has 2 of 5000 values that are not") as refused:
        begin(saves(tmp_path), 2, large, at_once=True)
    assert refused.value.code == "E1403"


def test_bug_in_the_save_thread_is_raised_and_leaves_no_files(tmp_path: Path) -> None:
    fault_injection.arm("checkpoint.file@2:raise")
    one = saves(tmp_path)
    begin(one, 1, tensors())
    with pytest.raises(RuntimeError, match="a fault was injected"):
        one.end()
    assert list(tmp_path.iterdir()) == []


def test_failing_run_waits_for_the_current_save(tmp_path: Path) -> None:
    one = saves(tmp_path)
    begin(one, 1, tensors())
    one.give_up()
    assert state.find_damage(tmp_path / "step-00000001") is None
    said: list[str] = []
    fault_injection.arm("checkpoint.file@1:enospc")
    one = saves(tmp_path, said=said)
    begin(one, 2, tensors())
    one.give_up()
    assert "the disk is full" in said[0]


def test_too_little_memory_for_a_copy_makes_saves_blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_save, "free_memory", lambda: 1_000_000)
    said: list[str] = []
    one = saves(tmp_path, said=said)
    for step in (1, 2):
        begin(one, step, tensors())
        assert not one.is_writing
        assert state.step_of(state.list_checkpoints(tmp_path)[0]) == step
    assert len(said) == 1
    assert "1,000,000 bytes of memory are free" in said[0]


def test_failing_page_locked_allocation_makes_saves_blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(nbytes: int) -> Tensor:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(background_save, "_allocate_pinned", refused)
    said: list[str] = []
    one = saves(tmp_path, said=said)
    one._pinned.reserve(1)
    begin(one, 1, tensors())
    assert not one.is_writing
    assert "page-locked memory for a copy of the checkpoint is not available: training waits" in said[0]


class OnDevice(Tensor):
    """A CPU tensor that claims to be on a GPU, and records when it is copied."""

    device = torch.device("cuda", 0)
    said: list[str]

    @classmethod
    def __torch_function__(
        cls, called: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if called is Tensor.copy_:
            cls.said.append("copied" if (kwargs or {}).get("non_blocking") else "copied while the host waits")
        return super().__torch_function__(called, types, args, kwargs or {})


def test_device_copies_are_ordered_after_queued_work_and_before_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A copy that overlaps an update would mix two states in a checkpoint."""
    said: list[str] = []
    side, arrived, main = (Line(name, said) for name in ("side", "arrived", "main"))
    for name, line in (("Stream", side), ("Event", arrived), ("current_stream", main)):
        monkeypatch.setattr(torch.cuda, name, lambda *_, line=line: line)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(OnDevice, "said", said, raising=False)
    content = {name: tensor.as_subclass(OnDevice) for name, tensor in tensors().items()}
    pinned = PinnedCopies()
    for _ in range(2):  # the second reuses memory and stream of the first
        said.clear()
        snapshot = Snapshot(content, pinned)
        sets_out = ["side wait_stream main", "within side", *["copied"] * len(content), "arrived record side"]
        assert said == [*sets_out, "out of side"]
        said.clear()
        snapshot.hold()
        assert said == ["main wait_event arrived"], "the device waits, the host does not"
        snapshot.hold()
        assert said[1:] == [], "once"
        read = snapshot.pieces("w/denoiser/a")
        assert said[1:] == []
        piece = next(read)
        assert said[1:] == ["arrived synchronize"], "the thread waits before it reads"
        assert torch.equal(piece, tensors()["w/denoiser/a"].reshape(-1).view(torch.uint8)[: len(piece)])


@pytest.mark.gpu
def test_gpu_copies_block_the_device_but_not_the_host() -> None:
    content = {name: tensor.cuda() for name, tensor in tensors().items()}
    before = {name: tensor.cpu() for name, tensor in content.items()}
    snapshot = Snapshot(content, PinnedCopies())
    snapshot.hold()
    move(content)
    for name, tensor in before.items():
        read = b"".join(piece.numpy().tobytes() for piece in snapshot.pieces(name))
        assert read == tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


class Hashed:
    """Counts the bytes hashed with SHA-256, of tensor files and of other files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        real, counter = hashlib.sha256, self

        class Counted:
            def __init__(self, data: bytes = b"") -> None:
                self._real = real()
                self.update(data)

            def update(self, data: Any) -> None:
                counter.bytes += memoryview(data).nbytes
                self._real.update(data)

            def hexdigest(self) -> str:
                return self._real.hexdigest()

        def of_file(path: Path) -> str:
            self.bytes += path.stat().st_size
            return real(path.read_bytes()).hexdigest()

        monkeypatch.setattr(hashlib, "sha256", Counted)
        monkeypatch.setattr(durable, "sha256", of_file)

    def take(self) -> int:
        taken, self.bytes = self.bytes, 0
        return taken


@pytest.mark.parametrize("at_once", [True, False])
def test_each_byte_is_hashed_once_per_save_and_once_per_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    hashed, one = Hashed(monkeypatch), saves(tmp_path, keep=1)
    sizes = []
    for step in (1, 2, 3):
        begin(one, step, tensors(step), at_once=at_once)
        one.end()
        written = files_of(tmp_path / state.name_of(step))
        sizes.append(sum(len(content) for name, content in written.items() if name != "manifest.json"))
        assert hashed.take() == sizes[-1]
    assert [state.step_of(path) for path in state.list_checkpoints(tmp_path)] == [3]
    newest = state.newest_valid(tmp_path, hashes=False).path
    assert newest is not None
    restored = state.read(newest, tensors=False)
    small = hashed.take()
    assert 0 < small < 100, "state.json alone"
    held = state.tensors_of(restored.path)
    assert hashed.take() == sizes[-1] - small // 2
    assert all(torch.equal(held[name], tensor) for name, tensor in tensors(3).items())
    state.tensors_of(restored.path, hashes=False)
    assert hashed.take() == 0


def test_changed_files_are_hashed_again(tmp_path: Path) -> None:
    one = saves(tmp_path, keep=2)
    for step in (1, 2):
        begin(one, step, tensors(step), at_once=True)
    file = tmp_path / "step-00000002" / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    begin(one, 3, tensors(3), at_once=True)
    assert [state.step_of(path) for path in state.list_checkpoints(tmp_path)] == [3, 2, 1], (
        "2 is damaged and does not count"
    )


def test_sharded_save_is_completed_between_two_steps(tmp_path: Path) -> None:
    """The thread does not communicate; an error in one process invalidates the checkpoint for all."""
    whole = torch.randn(4, 3)
    answers = ['{"files": {}, "tensors": {}}', '{"error": "the disk is full", "code": "E1701", "kind": "StorageError"}']
    run, threads = RunSettings(), []

    class Two(Runtime):
        world_size = 2

        def __init__(self) -> None:
            super().__init__(torch.device("cpu"), Launch(), run)
            self.shares = {"denoiser/a": Share((4, 3), 0, 4)}

        def gather(self, text: str) -> tuple[str, ...]:
            threads.append(threading.current_thread())
            return text, answers.pop(0)

    one = Saves(tmp_path, Two(), run, print)
    for step, ends_well in ((1, True), (2, False)):
        begin(one, step, {"w/denoiser/a": whole})
        assert one._work is not None
        wait([one._work])
        assert not one.is_writing
        assert state.step_of((state.list_checkpoints(tmp_path) or [Path("none")])[0]) < step
        if ends_well:
            one.end()
            continue
        with pytest.raises(StorageError, match="the disk is full"):
            one.end()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert set(threads) == {threading.current_thread()}
    assert torch.equal(state.read(tmp_path / "step-00000001").tensors["w/denoiser/a"], whole)


def written(folder: Path, step: int) -> None:
    state.write(folder, step=step, tensors={"w/denoiser/a": torch.ones(3)}, values={}, recipe_digest="")


def test_best_checkpoint_is_kept_until_a_better_one_is_complete(tmp_path: Path) -> None:
    verified = state.Verified()
    losses = {1: 0.9, 2: 0.5, 3: 0.7, 4: 0.4, 9: 0.1}
    for step in (1, 2, 3):
        written(tmp_path, step)
    best = best_of(tmp_path, losses, verified)
    assert best == tmp_path / "step-00000002", "step 9 has a loss and no checkpoint"
    name_best(tmp_path, best)
    assert [path.name for path in state.prune(tmp_path, 1, verified, protected=[best])] == ["step-00000001"]
    assert (tmp_path / "best").resolve() == best
    assert state.read(tmp_path / "best").step == 2
    written(tmp_path, 4)
    (tmp_path / "step-00000004" / "weights.safetensors").write_bytes(b"broken")
    assert best_of(tmp_path, losses, verified) == best, "what is damaged is not better"
    written(tmp_path, 5)
    written(tmp_path, 6)
    name_best(tmp_path, tmp_path / "step-00000006")
    assert [p.name for p in state.prune(tmp_path, 1, verified, protected=[best])][-1] == "step-00000003"
    assert {p.name for p in tmp_path.iterdir()} == {"best", "step-00000002", "step-00000006"}
    name_best(tmp_path, None)
    assert not (tmp_path / "best").is_symlink()
    (tmp_path / "best").mkdir()
    with pytest.raises(FileExistsError):
        name_best(tmp_path, best)
