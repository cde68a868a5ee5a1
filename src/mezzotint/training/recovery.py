"""What happens to one run in a thousand: memory runs out, losses are not finite, samples prove corrupt, the run folder
is lost. The loop calls this and reads on.
"""

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
    """max_nonfinite_steps: non-finite steps in a row that a run survives."""

    train_step: TrainStep
    peers: Peers
    host: RunHost[Any]
    progress: Progress
    max_nonfinite_steps: int

    def run_step_or_retry(self, step: StepBatches) -> StepReportFuture:
        """Takes a step. Where memory runs out on any process nothing has moved, and all repeat the step in smaller
        micro-batches, with the same draws. Raises OutOfMemoryError where they cannot be smaller."""
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
        """After memory ran out here: takes part in what the other processes do in this step, with a loss that is not
        finite, so that it moves nothing there."""
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
        here = min(largest, self.train_step.micro_batch or largest)
        most = max(map(int, self.train_step.runtime.gather(str(here))))
        if most <= 1:
            raise torch.OutOfMemoryError(shortage)
        half = self.train_step.micro_batch = -(-most // 2)
        self.host.warn(
            f"out of memory at step {step.step + 1} with {most} samples at once ({shortage.partition(chr(10))[0]}): "
            f"continuing with micro-batches of {half} on every process and the same draws; set run.micro_batch={half} "
            "to start that way"
        )

    def act_on(self, signals: PeerSignals, corrupt: Sequence[str]) -> None:
        """Acts on a lost folder and corrupt samples, on every process. corrupt: keys of those that this process met.
        Raises StorageError E1520 where the run folder is lost: nothing could be saved."""
        if PeerSignals.FOLDER_LOST in signals:
            raise StorageError(self.host.loss_of_folder() or "the first process has lost the run folder", code="E1520")
        if PeerSignals.CORRUPT_SAMPLES in signals:
            known = set(self.progress.broken)
            every = self.train_step.runtime.gather(json.dumps(corrupt))
            new = {key for keys in every for key in json.loads(keys)} - known
            self.progress.broken = sorted(known | new)
            self.host.broken(sorted(new), len(self.progress.broken))

    def count_bad_step(self, report: StepReport) -> None:
        """Counts steps that were not finite. Raises Diverged E1604 where there are too many."""
        progress = self.progress
        if report.applied or report.overflow:
            progress.bad_in_a_row = 0 if report.applied else progress.bad_in_a_row
            return
        is_over = progress.count_bad(report.step, self.max_nonfinite_steps)
        self.host.bad_step(report)
        if is_over:
            raise Diverged(
                f"step {report.step + 1}: {progress.bad_in_a_row} steps in a row and "
                f"{len(progress.bad_steps)} of the last 1000 were not finite; their samples are in "
                "bad_steps.jsonl; lower optim.lr"
                + (", or set run.precision=bf16 or fp32" if self.train_step.model.precision.scaled else ""),
                code="E1604",
                step=report.step + 1,
            )
