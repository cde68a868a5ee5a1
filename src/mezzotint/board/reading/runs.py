"""A run's status, read from its folder: state, step, speed, time left, events, checkpoints, exports, environment."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mezzotint import outside
from mezzotint.assets import MODELS
from mezzotint.board.reading import values
from mezzotint.board.reading.tails import make_printable, to_amount, to_count, to_number
from mezzotint.tasks.holders import Holder, holder

State = Literal["starting", "running", "stopped", "finished", "diverged", "killed", "failed", "elsewhere", "waiting"]

STATE_MEANINGS: Mapping[State, str] = {
    "starting": "loading the data and the model, before the first step",
    "running": "running",
    "stopped": "stopped after saving; the command below resumes it",
    "finished": "finished",
    "diverged": "stopped because the loss was not finite; the end of the log names the step and what to change",
    "killed": "ended without reporting why: it was killed, or the machine stopped; the command below resumes it",
    "failed": "did not start; the output below contains the reason",
    "waiting": "waiting for a lock",
    "elsewhere": "another machine uses this folder; whether it is still training is not visible from here",
}
"""A description of each state."""

ACCOUNT = ("description", "notes")
"""Facts of a start that have their own section."""

_EVENTS = 50_000_000
"""Largest size of a history, in bytes."""

MOST_STORED = 200
"""Checkpoints and exports that are listed at most, the newest."""

_MOST_MARKS = 1000
"""Checkpoints (the newest) and bad steps (the first) that are marked on the curves at most."""

_TAIL = 64_000
_AVERAGED = 20
"""Lines of metrics over which the speed is averaged."""

_STEP = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run. step: steps done; steps: planned steps, None if the history has none. seconds_per_step: mean
    of the last lines. changed: time of the last write, seconds since 1970. began: time of the first event. waits_for:
    see `Holder`."""

    state: State
    step: int
    steps: int | None
    loss: float | None
    images_per_s: float | None
    seconds_per_step: float | None
    changed: float
    began: str
    waits_for: str = ""

    @property
    def meaning(self) -> str:
        """A description of its state."""
        return (
            f"waits for {make_printable(self.waits_for)}; it continues by itself"
            if self.waits_for
            else STATE_MEANINGS[self.state]
        )

    @property
    def seconds_left(self) -> float | None:
        """Seconds of training left at the speed of the last lines; None unless it is running."""
        if self.state != "running" or self.steps is None or self.seconds_per_step is None:
            return None
        return max(0.0, (self.steps - self.step) * self.seconds_per_step)


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A checkpoint or an export. path: "" if the page cannot generate with it: it is not UTF-8, or has learned tokens,
    too. command: resumes from it or generates with it. adapts: of an adapter, its base model."""

    name: str
    path: str
    step: int
    size: int
    is_whole: bool
    command: str
    adapts: str = ""


def read_status(path: Path) -> RunStatus:
    """The status of the run in a folder."""
    events = history(path)
    steps = last_steps(path / "metrics.jsonl")
    start = _last_start(events)
    last = steps[-1] if steps else {}
    spent = sum(to_amount(line.get("seconds_since")) for line in steps)
    over = sum(to_amount(line.get("steps_since")) for line in steps)
    loss = last.get("loss_avg", last.get("loss"))
    lock_holder = holder(path)
    return RunStatus(
        state=_state(path, events, lock_holder),
        step=to_count(last.get("step", start.get("step"))) or 0,
        steps=to_count(start.get("steps")),
        loss=to_number(loss),
        images_per_s=to_number(last.get("images_per_s")),
        seconds_per_step=spent / over if over else None,
        changed=_last_write(path),
        began=str(events[0].get("time", "")) if events else "",
        waits_for=lock_holder.waits_for,
    )


def _last_write(path: Path) -> float:
    """The time of the last write to the run, in seconds since 1970. That of the folder counts only for a run that has
    not written anything: notes change it, too."""
    times = []
    for name in ("metrics.jsonl", "history.jsonl", "run.log", "."):
        try:
            times.append(os.lstat(path / name).st_mtime)
        except OSError:
            continue
    return max(times[:-1] or times, default=0.0)


def history(path: Path) -> list[dict[str, Any]]:
    """The events of a run, oldest first; empty if they cannot be read."""
    try:
        return outside.read_lines(path / "history.jsonl", limit=_EVENTS, within=path)
    except OSError:
        return []


def _state(path: Path, events: Sequence[Mapping[str, Any]], lock_holder: Holder) -> State:
    last = str(events[-1].get("event", "")) if events else ""
    if lock_holder.who == "here":
        if last == "finished" and not lock_holder.waits_for:
            return "finished"  # its process is about to end
        is_training = os.path.lexists(path / "metrics.jsonl") and last != "stopped"
        return "waiting" if lock_holder.waits_for else "running" if is_training else "starting"
    ended: dict[str, State] = {"stopped": "stopped", "finished": "finished", "diverged": "diverged"}
    if last in ended and lock_holder.who != "elsewhere":
        return ended[last]
    if lock_holder.who == "elsewhere":
        return "elsewhere"
    if events:
        return "killed"
    return "failed" if (path / "logs" / "started.out").is_file() else "stopped"


def last_steps(path: Path) -> list[dict[str, Any]]:
    """The last `_AVERAGED` lines about steps in a file of metrics, oldest first, without incomplete lines."""
    try:
        lines = outside.read_tail(path, limit=_TAIL, within=path.parent).split(b"\n")
    except OSError:
        return []
    steps: list[dict[str, Any]] = []
    for line in reversed(lines):
        try:
            value = outside.parse_json(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if isinstance(value, dict) and "loss" in value and to_count(value.get("step")) is not None:
            steps.append(value)
        if len(steps) == _AVERAGED:
            break
    return steps[::-1]


def resume_command(path: Path) -> str:
    """The command that resumes a run."""
    return shlex.join(["mezzotint", "train", str(path / "recipe.yaml")])


def checkpoints(path: Path) -> list[SavedModel]:
    """The newest `MOST_STORED` checkpoints of a run, newest first. An incomplete one has no manifest."""
    line = resume_command(path)
    return [
        SavedModel(
            folder.name,
            _addressable(folder),
            int(match[1]),
            size_of(folder),
            (folder / "manifest.json").is_file(),
            f"{line} {shlex.quote(f'run.resume={folder}')}",
        )
        for folder, match in _steps(path / "checkpoints", within=path)[:MOST_STORED]
    ]


def exports(path: Path) -> list[SavedModel]:
    """The newest `MOST_STORED` exports of a run, newest first."""
    tree = values.read_tree(path / "recipe.yaml").get("model")
    model: Mapping[str, Any] = tree if isinstance(tree, dict) else {}
    adapted = _adapted_model(model)
    entries = [
        entry
        for entry in children(path / "exports", within=path)
        if not entry.name.startswith(".") and entry.suffix != ".md"
    ]
    entries = sorted(entries, key=lambda entry: entry.name, reverse=True)[:MOST_STORED]
    return [
        SavedModel(
            entry.name,
            _addressable(entry) if not (adapted and _learned_tokens(entry, model)) else "",
            int(match[1]) if (match := re.search(r"(\d{6,})", entry.name)) else 0,
            size_of(entry),
            True,
            shlex.join(["mezzotint", "sample", *_sampling_inputs(entry, adapted, model), "--prompt=…"]),
            adapted,
        )
        for entry in entries
    ]


def _adapted_model(model: Mapping[str, Any]) -> str:
    """The base model of a run's adapter as an argument; "" for a run without an adapter."""
    adapter = model.get("adapter")
    if not isinstance(adapter, dict) or adapter.get("kind", "none") == "none":
        return ""
    path = str(model.get("path", ""))
    return Path(path).name if Path(path).parent == MODELS else path


def _sampling_inputs(entry: Path, adapted: str, model: Mapping[str, Any]) -> list[str]:
    """The model arguments of `sample`: an export, or an adapter and its learned tokens with their base model."""
    if not adapted:
        return [str(entry)]
    return [
        adapted,
        f"--adapter={entry}",
        *(f"--embedding={word}={file}" for word, file in _learned_tokens(entry, model)),
    ]


def _learned_tokens(entry: Path, model: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """The learned tokens stored with an adapter, each with its file."""
    tokens = model.get("tokens")
    tokens_by_name = tokens.get("words") if isinstance(tokens, dict) else None
    names = [str(word) for word in tokens_by_name] if isinstance(tokens_by_name, dict) else []
    stems = [
        re.sub(r"[^\w.-]+", "-", word).strip("-.") for word in names
    ]  # as `learned_tokens.plain_name`, where torch is
    files = [(word, entry / "embeddings" / f"{stem}.safetensors") for word, stem in zip(names, stems, strict=True)]
    return [(word, file) for word, file in files if os.path.isfile(file)]


def _addressable(path: Path) -> str:
    text = str(path)
    return text if text.encode("utf-8", "ignore").decode() == text else ""


def _steps(folder: Path, *, within: Path) -> list[tuple[Path, re.Match[str]]]:
    entries = ((entry, _STEP.fullmatch(entry.name)) for entry in children(folder, within=within))
    return sorted(((e, m) for e, m in entries if m is not None), key=lambda pair: int(pair[1][1]), reverse=True)


def children(folder: Path, *, within: Path) -> list[Path]:
    """The entries of a folder of a run, without links that lead out of the run's folder `within`; empty if the folder
    cannot be read or is such a link itself."""
    if outside.leads_out(folder, within):
        return []
    try:
        with os.scandir(folder) as entries:
            return [Path(e.path) for e in entries if not (e.is_symlink() and outside.leads_out(Path(e.path), within))]
    except OSError:
        return []


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; links count as 0."""
    try:
        if not path.is_dir():
            return path.lstat().st_size
        return sum(size_of(Path(e.path)) for e in os.scandir(path) if not e.is_symlink())
    except OSError:
        return 0


def marks(events: Sequence[Mapping[str, Any]], path: Path) -> list[dict[str, Any]]:
    """The marks on a run's curves: {step, kind, text}."""
    marks_: list[dict[str, Any]] = []
    for event in events:
        kind, step = str(event.get("event", "")), to_count(event.get("step"))
        values, changes = event.get("values"), event.get("changes")
        if kind == "live settings" and isinstance(values, dict):
            text = ", ".join(f"{name}={value}" for name, value in values.items())
            epoch = to_count(event.get("epoch"))
            marks_.append({"step": None, "epoch": epoch, "kind": "settings", "text": make_printable(text)})
        elif step is not None and kind in ("resumed", "stopped", "exported", "finished", "diverged", "asked"):
            changes = "; ".join(map(str, changes)) if isinstance(changes, list) else ""
            text = f"{kind} at step {step:,}" + (f": {changes}" if changes else "")
            marks_.append({"step": step, "kind": kind, "text": make_printable(text)})
        elif step is not None and kind == "slow-steps":
            text = f"slow steps up to step {step:,}: {event.get('cause')}"
            marks_.append({"step": step, "kind": "slow", "text": make_printable(text)})
    marks_ += [
        {"step": int(match[1]), "kind": "saved", "text": f"checkpoint {folder.name}"}
        for folder, match in _steps(path / "checkpoints", within=path)[:_MOST_MARKS]
    ]
    try:
        bad = outside.read_lines(path / "bad_steps.jsonl", limit=_EVENTS, within=path)
    except OSError:
        bad = []
    steps = sorted({step for line in bad if (step := to_count(line.get("step"))) is not None})
    marks_ += [{"step": step, "kind": "bad", "text": f"step {step:,} was not finite"} for step in steps[:_MOST_MARKS]]
    return marks_


def card(path: Path, events: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Versions, device, launch and hashes of the last start, as text by name."""
    try:
        facts = outside.read_json(path / "environment.json", within=path)
    except (OSError, ValueError):
        facts = {}
    start = _last_start(events)
    rows = {"folder": str(path)}
    for name, value in (facts if isinstance(facts, dict) else {}).items():
        if isinstance(value, dict):
            rows |= {f"{name}: {key}": str(one) for key, one in value.items()}
        else:
            rows[name] = str(value)
    left_out = ("event", "time", *ACCOUNT)
    rows |= {f"start: {n}": _to_text(v) for n, v in start.items() if n not in left_out and v not in ([], "")}
    rows |= _hashes(path)
    rows["starts"] = str(sum(event.get("event") == "started" for event in events))
    return {make_printable(name): make_printable(value) for name, value in rows.items()}


def description(events: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The description that the last start of a run printed (`mezzotint.tasks.describe`): title and text of each line,
    then its notes. Empty for a run that has not started."""
    start = _last_start(events)
    account, notes = start.get("description"), start.get("notes")
    lines = [line for line in account if isinstance(line, list)] if isinstance(account, list) else []
    lines += [["note", note] for note in notes] if isinstance(notes, list) else []
    return [
        (make_printable(str(title)), make_printable(str(text)))
        for title, text in (line for line in lines if len(line) == 2)
    ]


def _last_start(events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((event for event in reversed(events) if event.get("event") == "started"), {})


def _hashes(path: Path) -> dict[str, str]:
    """The hashes of a run's data and weights, from its manifest."""
    try:
        manifest = outside.read_json(path / "manifest.json", limit=_EVENTS, within=path)
    except (OSError, ValueError):
        return {}
    data, weights = (manifest.get(part) for part in ("data", "weights")) if isinstance(manifest, dict) else (None, None)
    rows: dict[str, str] = {}
    if isinstance(data, dict):
        rows |= {f"data: {name}": str(data[name]) for name in ("samples", "fingerprint") if name in data}
    if isinstance(weights, dict):
        rows |= {f"weights: {name}": str(one) for name, one in weights.items()}
    return rows


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
