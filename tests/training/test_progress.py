"""Progress in a checkpoint."""

from __future__ import annotations

import json

from mezzotint.training.progress import Progress


def test_progress_uses_new_last_step_and_ignores_unknown_keys() -> None:
    first = Progress(step=7, last_step=9, samples=28, bad_steps=[3], rate_peak={"denoiser": 1e-4}, first_step=2)
    again = Progress(last_step=20)
    again.load(json.loads(json.dumps(first.state())) | {"from_the_future": 1}, last_step=20)
    assert (again.step, again.samples, again.bad_steps, again.first_step) == (7, 28, [3], 2)
    assert again.rate_peak == first.rate_peak
    assert first.state().keys() == again.state().keys()
    assert not again.is_done
    assert Progress(step=20, last_step=20).is_done
