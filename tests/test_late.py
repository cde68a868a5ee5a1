"""What waits for its first use: a process that takes a training step has read none of it, and all of it works then."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from mezzotint import late

HEAVY = (
    "diffusers.models.autoencoders.autoencoder_asym_kl", "diffusers.models.transformers.transformer_flux",
    "diffusers.models.unets.unet_3d_condition", "diffusers.pipelines", "peft.config", "scipy.integrate._quadpack_py",
    "scipy.linalg", "scipy.optimize._optimize", "scipy.stats._stats_py", "torch._dynamo.eval_frame",
    "torch._inductor.utils", "datasets", "pandas", "pyarrow", "skimage", "sklearn", "tensorflow", "torchvision",
    "fsspec",
    "mezzotint.tasks.weights.convert",
)  # fmt: skip
"""Of each package one module that it imports when it is used."""
OF_TEXT = ("transformers.modeling_utils", "transformers.loss.loss_utils", "sympy", "torch.distributed.tensor")
"""What transformers' text encoders import; nothing before them does."""

ONE_STEP = f"""
import os, sys
from mezzotint import late
late.install()
import mezzotint.tasks.train.train
early = [name for name in {(*HEAVY, *OF_TEXT, "matplotlib")} if name in sys.modules]
from mezzotint import cli
from mezzotint.training.loop import Trainer
whole = Trainer._made
def step(self, batches):
    whole(self, batches)
    print("LOADED", early, [name for name in {HEAVY} if name in sys.modules], late.is_waiting("torch._dynamo"))
    import torch
    from diffusers.models.attention import BasicTransformerBlock, FeedForward
    compiled = torch.compile(FeedForward(4), backend="eager", fullgraph=True)
    assert compiled(torch.ones(1, 4)).shape == (1, 4)
    from torch._dynamo import trace_rules
    assert trace_rules.is_callable_allowed(BasicTransformerBlock)
    print("COMPILED", flush=True)
    os._exit(0)
Trainer._made = step
cli.main(["train", "tiny_cpu", "run.steps=1", "run.folder=run"])
"""


@pytest.mark.slow
def test_a_process_that_takes_a_step_reads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ONE_STEP], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["LOADED [] [] True", "COMPILED"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "check tiny_cpu",
        "bench tiny_cpu --steps=2",
        "cache tiny_cpu data.cache.latents=true data.cache.text=true data.cache.path=here",
        "convert mezzotint-mini model.safetensors",
        "sample mezzotint-mini --prompt=a --steps=1",
    ],
)
def test_a_verb_runs_in_a_process_of_its_own(tmp_path: Path, line: str) -> None:
    """In the order of imports that its own line brings about, which no process of tests has."""
    words = [sys.executable, "-m", "mezzotint", *line.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(autouse=True)
def _installed() -> None:
    late.install()


@pytest.mark.parametrize("name", [*sorted(late.OPEN), *late.FOR_LATER])
def test_what_waits_is_there_and_comes_whole(name: str) -> None:
    """Every entry is a module of the installed release, and its names are the module's own."""
    if find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    module = importlib.import_module(name)
    late.use(name)
    assert not late.is_waiting(name)
    public = [each for each in vars(sys.modules[name]) if each[0] != "_"]
    assert public
    assert all(getattr(module, each) is getattr(sys.modules[name], each) for each in public)


LENDER = """
import ran
ran.names.append(__name__)
from lender.inner import deep
class Thing:
    number = 7
def function(value):
    return value + 1
"""
BORROWER = """
import lender
from lender import Thing, function
def is_thing(value):
    return isinstance(value, Thing)
def make():
    class More(Thing):
        pass
    return More()
"""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Two libraries, one of which takes names from the other that waits. The modules that have run."""
    for name, text in {
        "lender/__init__.py": LENDER,
        "lender/inner.py": "import ran\nran.names.append(__name__)\ndeep = 5\n",
        "lender/broken.py": "import ran\nran.names.append(__name__)\n1 / 0\n",
        "borrower/__init__.py": BORROWER,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    record = ModuleType("ran")
    record.names = []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ran", record)
    monkeypatch.setitem(late.FOR_LATER, "lender", "borrower")
    monkeypatch.setitem(late.FOR_LATER, "lender.broken", "borrower")
    monkeypatch.syspath_prepend(str(tmp_path))
    late.install()
    yield record.names
    for name in [name for name in sys.modules if name.partition(".")[0] in ("lender", "borrower")]:
        del sys.modules[name]
        late._waiting.pop(name, None)


def test_names_for_later_are_the_library_s_own_when_they_are_used(ran: list[str]) -> None:
    borrower = importlib.import_module("borrower")
    assert not borrower.is_thing(7)
    assert ran == []  # nobody has used it, so nothing is an instance of its classes
    assert borrower.function(1) == 2
    assert ran == ["lender", "lender.inner"]
    lender = importlib.import_module("lender")
    assert borrower.is_thing(lender.Thing())
    assert not borrower.is_thing(7)
    assert type(borrower.make()).__mro__[1] is lender.Thing
    assert borrower.Thing.number == 7
    assert borrower.lender.deep == 5


def test_others_get_the_thing_itself_and_a_name_that_lacks_is_missed(ran: list[str]) -> None:
    importlib.import_module("borrower")
    lender = importlib.import_module("lender")
    with pytest.raises(AttributeError):
        lender.__wrapped__  # noqa: B018  # what looks at all modules asks for such names
    assert ran == []
    assert isinstance(lender.Thing, type)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lender.nothing  # noqa: B018
    with pytest.raises(ImportError, match="nothing"):
        exec("from lender import nothing")


def test_a_module_inside_is_the_one_that_the_package_imported(ran: list[str]) -> None:
    importlib.import_module("lender")
    inner = importlib.import_module("lender.inner")
    assert ran == ["lender", "lender.inner"]  # the package first, each once
    assert inner is sys.modules["lender"].inner
    assert inner.__spec__ is not None
    assert inner.__spec__.origin == inner.__file__


def test_what_fails_when_it_is_used_fails_each_time(ran: list[str]) -> None:
    broken = importlib.import_module("lender.broken")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            broken.anything  # noqa: B018
    assert ran.count("lender.broken") == 2


def test_threads_that_use_it_at_once_see_all_of_it(ran: list[str]) -> None:
    lender = importlib.import_module("lender")
    numbers: list[int] = []
    threads = [threading.Thread(target=lambda: numbers.append(lender.Thing.number)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers == [7] * 8
    assert ran == ["lender", "lender.inner"]
