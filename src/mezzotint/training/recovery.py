"""Rare failures: out of memory, non-finite losses, corrupt samples, a lost run folder. Called by the loop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mezzotint.errors import Diverged, StorageError
from mezzotint.stages import StepBatches, StepReport
from mezzotint.training.peers import Peers, PeerSignals
from mezzotint.training.progress import Progress
from mezzotint.training.requests import RunHost
from mezzotint.training.step import TrainStep
from mezzotint.training.step_report import StepReportFuture, sums_of_failed_step


@dataclass(slots=True)
class Recovery:
    """max_nonfinite_steps: number of consecutive non-finite steps that a run tolerates."""

    train_step: TrainStep
    peers: Peers
    host: RunHost[Any]
    progress: Progress
    max_nonfinite_steps: int

    def run_step_or_retry(self, step: StepBatches) -> StepReportFuture:
        """Runs a step. If memory runs out on any process, no weights change, and all processes repeat the step in
        smaller micro-batches with the same random draws. Raises OutOfMemoryError if they cannot be smaller."""
        model, runtime = self.train_step.model, self.train_step.runtime
        while True:
            scale = {name: tensor.clone() for name, tensor in model.scale.tensors().items()}
            report, shortage = None, ""
            try:
                report = self.train_step(step)
            except torch.OutOfMemoryError as error:
                if not runtime.may_repeat or model.update.in_backward:
                    raise
                shortage = str(error)
            if report is None:
                self._join_failed_step(step)
            if report is not None and not self.peers.is_out_of_memory:
                return report
            model.scale.load(scale)
            self.peers.repeat()
            self._halve_micro_batch(step, shortage or "on another process")
            runtime.repeat_step()

    def _join_failed_step(self, step: StepBatches) -> None:
        """After this process ran out of memory: takes part in the collectives of the step with a non-finite loss, so
        the other processes do not change their weights either."""
        model, runtime = self.train_step.model, self.train_step.runtime
        self.peers.attach(sums_of_failed_step(step, runtime.device), step.broken, PeerSignals.OUT_OF_MEMORY)
        runtime.join_failed_step(lambda: self.train_step.forward_backward(step, at_most=1))
        for parameter in model.trained.values():
            parameter.grad = None
        if runtime.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.train_step.checks_gradients(step):
            runtime.agree(0)
        self.peers.take_sums()
        runtime.grad_norms(model.trained, model.optim.clip.scope)

    def _halve_micro_batch(self, step: StepBatches, shortage: str) -> None:
        largest = max(step.sizes)
        size = min(largest, self.train_step.micro_batch or largest)
        micro_batch = max(map(int, self.train_step.runtime.gather(str(size))))
        if micro_batch <= 1:
            raise torch.OutOfMemoryError(shortage)
        half = self.train_step.micro_batch = -(-micro_batch // 2)
        self.host.warn(
            f"out of memory at step {step.step + 1} with {micro_batch} samples at once "
            f"({shortage.partition(chr(10))[0]}): "
            f"continuing with micro-batches of {half} on every process and the same draws; set run.micro_batch={half} "
            "to start that way"
        )

    def act_on(self, signals: PeerSignals, corrupt: Sequence[str]) -> None:
        """Acts on a lost folder and corrupt samples, on every process. corrupt: keys of the corrupt samples that this
        process found. Raises StorageError E1520 if the run folder is lost: nothing could be saved."""
        if PeerSignals.FOLDER_LOST in signals:
            raise StorageError(self.host.loss_of_folder() or "the first process has lost the run folder", code="E1520")
        if PeerSignals.CORRUPT_SAMPLES in signals:
            earlier = set(self.progress.broken)
            every = self.train_step.runtime.gather(json.dumps(corrupt))
            new = {key for keys in every for key in json.loads(keys)} - earlier
            self.progress.broken = sorted(earlier | new)
            self.host.report_corrupt(sorted(new), len(self.progress.broken))

    def count_bad_step(self, report: StepReport) -> None:
        """Counts non-finite steps. Raises Diverged E1604 if there are too many."""
        progress = self.progress
        if report.applied or report.overflow:
            progress.bad_in_a_row = 0 if report.applied else progress.bad_in_a_row
            return
        is_limit_exceeded = progress.count_bad(report.step, self.max_nonfinite_steps)
        self.host.bad_step(report)
        if is_limit_exceeded:
            raise Diverged(
                f"step {report.step + 1}: {progress.bad_in_a_row} steps in a row and "
                f"{len(progress.bad_steps)} of the last 1000 were not finite; their samples are in "
                "bad_steps.jsonl; lower optim.lr"
                + (", or set run.precision=bf16 or fp32" if self.train_step.model.precision.has_loss_scale else ""),
                code="E1604",
                step=report.step + 1,
            )
