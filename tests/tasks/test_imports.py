"""The cost of importing commands from Python."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMANDS = (
    "mezzotint.tasks.train.train", "mezzotint.tasks.check.check", "mezzotint.tasks.cache.cache",
    "mezzotint.tasks.sample._generating", "mezzotint.tasks.weights.convert", "mezzotint.tasks.weights.merge",
)  # fmt: skip
LIBRARIES = (
    "diffusers", "transformers", "peft", "torchao", "accelerate", "scipy", "matplotlib", "datasets", "tensorboard",
    "torch._dynamo",
)  # fmt: skip


@pytest.mark.slow
def test_importing_a_command_imports_no_model_library() -> None:
    """Those imports take seconds and are often not needed."""
    code = f"import sys, {', '.join(COMMANDS)}\nprint([name for name in {LIBRARIES} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
