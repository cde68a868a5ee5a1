"""Runs that an earlier version of Mezzotint began, for tests/faults/old/: `python tools/old_runs.py COMMIT NAME
[--processes=2] [key=value …]`.

Checks the commit out beside, lets its own code train a tiny model for six steps, and keeps the checkpoint of step 3
with the lines of all six. What it kept is never written anew: it is what that version wrote.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "tests" / "faults" / "old"
"""What lies there: model/, pictures/, and a folder for each run: run/ as it stood, losses.json of the steps behind."""
STEPS, KEPT = 6, 3
SETTINGS = {
    "model.path": "model", "model.weights": "random", "data.path": "pictures", "data.cache.path": "cache",
    "data.resolution": 48, "data.buckets.step": 8, "data.batch_size": 4, "data.workers": 0, "data.crop": "random",
    "data.flip": 0.5, "data.captions.dropout": 0.1, "optim.lr": 1e-3, "optim.ema.rule": "ramp", "run.steps": STEPS,
    "run.device": "cpu", "run.threads": 1, "run.tensorboard": "false", "run.log_samples": "true",
    "run.save.every": KEPT, "run.save.keep": 2,
    # small: two convolutions and what they know of time
    "model.freeze": '["denoiser/down_blocks.*", "denoiser/up_blocks.*", "denoiser/mid_block.*"]',
}  # fmt: skip


def main(words: Sequence[str]) -> None:
    """Makes one of them."""
    commit, name, *more = words
    processes = next((int(word.partition("=")[2]) for word in more if word.startswith("--processes=")), 1)
    settings = SETTINGS | dict(word.split("=", 1) for word in more if not word.startswith("--"))
    with tempfile.TemporaryDirectory(prefix="old-") as place:
        tree, world = Path(place) / "tree", Path(place) / "world"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", tree, commit], check=True)
        try:
            _train(tree, world, settings, processes)
            _keep(world / "run", PLACE / name)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True)


def _train(tree: Path, world: Path, settings: dict[str, object], processes: int) -> None:
    """The old code's run, in a folder of its own."""
    world.mkdir()
    for name in ("model", "pictures"):
        shutil.copytree(PLACE / name, world / name)
    (world / "run.yaml").write_text("schema: 1\n")
    line = [sys.executable, "-m", "mezzotint", "train", "run.yaml", "run.folder=run"]
    line += [f"{path}={value}" for path, value in settings.items()]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plain = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    many = {"WORLD_SIZE": processes, "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [{"RANK": rank, "LOCAL_RANK": rank, **many} if processes > 1 else {} for rank in range(processes)]
    running = [
        subprocess.Popen(line, cwd=world, env=plain | {key: str(value) for key, value in one.items()}) for one in ranks
    ]
    end = world / "run" / "checkpoints" / f"step-{STEPS:08d}" / "manifest.json"
    while not end.exists() and any(process.poll() is None for process in running):
        time.sleep(0.5)
    for process in running:  # what comes after the last checkpoint is not kept
        process.kill()
        process.wait()


def _keep(run: Path, place: Path) -> None:
    """A run as it stood after the kept step, and what came then."""
    shutil.rmtree(place, ignore_errors=True)
    newest = run / "checkpoints" / f"step-{KEPT:08d}"
    shutil.copytree(newest, place / "run" / "checkpoints" / newest.name)
    for path in (run / "recipe.yaml", run / "history.jsonl", run / "environment.json"):
        if path.exists():
            shutil.copyfile(path, place / "run" / path.name)
    for path in (run / "metrics.jsonl", *sorted((run / "logs").glob("samples.rank*.jsonl"))):
        kept = place / "run" / path.relative_to(run)
        kept.parent.mkdir(parents=True, exist_ok=True)
        lines = [line for line in path.read_text().splitlines() if json.loads(line)["step"] <= KEPT]
        kept.write_text("".join(f"{line}\n" for line in lines))
    (place / "behind").mkdir()
    for path in (run / "metrics.jsonl", *sorted((run / "logs").glob("samples.rank*.jsonl"))):
        lines = [line for line in path.read_text().splitlines() if json.loads(line)["step"] > KEPT]
        (place / "behind" / path.name).write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(sys.argv[1:])
