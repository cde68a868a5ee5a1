"""What people type out of habit, and what they are answered: with what they met and with the line to write."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from mezzotint.assets import ASSETS
from mezzotint.cli import main
from mezzotint.errors import OutOfMemory, RecipeError
from mezzotint.recipe import advice
from mezzotint.recipe.reading.read import read, read_text
from mezzotint.run_folder import RunFolder
from mezzotint.tasks import assemble
from mezzotint.tasks.check import check, page
from mezzotint.tasks.check.memory import Activations, Outline
from mezzotint.tasks.check.notes import knowledge
from mezzotint.tasks.prompts import cleaning
from mezzotint.tasks.train.train import named_failures
from mezzotint.weights import kinds

Captured = pytest.CaptureFixture[str]
FOREIGN = ["--pretrained_model_name_or_path=x", "--train_data_dir=y"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the lines below name; the current folder."""
    (tmp_path / "a.toml").write_text('# of kohya\n\n[model]\npath = "x"\n')
    (tmp_path / "windows.yaml").write_text('data:\n  path: "C:\\Users\\me"\n')
    (tmp_path / "runs" / "first" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "recipe.yaml").write_text("schema: 1\n")
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["train", "mini", "--lr", "1e-4"], "no switch --lr; write optim.lr=1e-4\n"),
        (["train", "--lr", "1e-4", "mini"], "no switch --lr; write optim.lr=1e-4\n"),
        (["train", "mini", "--lr=1e-4"], "no switch --lr; write optim.lr=1e-4\n"),
        (["train", "mini", "--data", "pics"], "no switch --data; write data.path=pics\n"),
        (["train", "mini", "-o", "out"], "no switch -o; write run.folder=out\n"),
        (["train", "mini", "--mixed_precision", "no"], "write run.precision=fp32 (no is fp32)\n"),
        (["train", "mini", "--gradient_checkpointing"], "write run.recompute.enabled=true\n"),
        (["train", "--gradient_checkpointing", "mini"], "write run.recompute.enabled=true\n"),
        (["train", "mini", "--train_text_encoder"], "write model.train=[denoiser, text_encoder]"),
        (["bench", "mini", "--learning_rate", "2"], "mezzotint bench has no switch --learning_rate; write optim.lr=2"),
        (["check", "mini", "--jsno"], "did you mean --json?"),
        (["check", "mini", "--zorp"], "`mezzotint check --help` lists what it takes"),
        (["resume", "runs/first"], "did you mean `mezzotint train runs/first`?"),
        (["generate", "runs/first", "--prompt=a fox"], "did you mean `mezzotint sample runs/first '--prompt=a fox'`?"),
        (["train", "mini", "--resume"], "a run goes on by itself where it stopped; write mezzotint train mini\n"),
        (["train", "mini", "run.name=a", "--resume=latest"], "write mezzotint train mini run.name=a\n"),
        (["train", "mini", "--resume", "runs/first"], "write mezzotint train runs/first\n"),
        (["train", "first"], "there is no recipe first; did you mean runs/first?"),
        (["train", "plain"], "plain is a folder and no run; give a recipe file, or a run's folder"),
        (
            ["train", "nofile.yaml"],
            "there is no file nofile.yaml in the current folder; a name without .yaml is a shipped recipe, which",
        ),
        (["train", "nofile"], "there is no recipe nofile; `mezzotint ls` lists the shipped recipes"),
        (
            ["train", "--as", "kohya", "--", "--x=1"],
            "kohya's lines are not read yet; nearest is --as diffusers-sd, and",
        ),
        (["translate", "--as", "OneTrainer", "--", "--x=1"], "OneTrainer's lines are not read yet"),
        (
            ["train", *FOREIGN],
            "mezzotint train reads a recipe; for a line of diffusers-sd write mezzotint train --as diffusers-sd -- "
            "--pretrained_model_name_or_path=x --train_data_dir=y",
        ),
        (["train", "--resume_ckpt=a.ckpt", "--data_root=y", "--max_epochs=4"], "for a line of everydream2 write"),
        (["train", "mini", FOREIGN[0]], "no switch --pretrained_model_name_or_path; write model.path=x\n"),
        (["check", "a.toml"], "line 3  file  E1004 this is TOML, not YAML; settings are written `optim:`"),
        (["check", "windows.yaml"], "a backslash begins a code; write the value in single quotes: 'C:\\Users\\me'"),
        (["cache", "mini", "data.path=a,b"], "); several folders are data.path=[a,b]"),
        (["sample", "mezzotint-mini", "--width", "512"], "write --size=512xHEIGHT, or --size=512 for a square"),
        (["sample", "mezzotint-mini", "--height=512"], "write --size=WIDTHx512, or --size=512 for a square"),
        (["sample", "mezzotint-mini", "--image", "x.png"], "write sample.image=x.png, and sample.strength=0.75"),
        (["sample", "mezzotint-mini", "--strength=0.4"], "write sample.strength=0.4\n"),
        (["sample", "mezzotint-mini", "--seed=4-1"], "--seed=4-1 is no range that rises by less than 1000"),
        (["sample", "mezzotint-mini", "--seed=x"], "--seed is a whole number, got 'x'"),
        (["sample", "mezzotint-mini", "--size=big"], "512 for a square, or sdxl-1.46, got 'big'"),
        (["sample", "mezzotint-mini", "--weights=x"], "--weights is raw, or ema for the average, got 'x'"),
    ],
)
def test_a_line_out_of_habit_is_answered_with_the_one_to_write(
    line: list[str], words: str, here: Path, capsys: Captured
) -> None:
    assert main(line) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert out == "", "nothing stands before the error"
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


def test_a_setting_in_a_hint_is_quoted_as_a_shell_wants_it(here: Path, capsys: Captured) -> None:
    assert main(["train", "mini", "--data", "my pictures"]) == 2
    assert "write data.path='my pictures'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--cfg", "3"], {"overrides": ("sample.guidance=3",)}),
        (["--cfg_scale=3,5"], {"overrides": ("sample.guidance=[3,5]",)}),
        (["--sampler", "euler_a"], {"overrides": ("sample.solver=euler_a",)}),
        (["--size=512"], {"sizes": ((512, 512),)}),
        (["--size=512,64x96"], {"sizes": ((512, 512), (64, 96))}),
        (["--seed=1-4"], {"seeds": (1, 2, 3, 4)}),
        (["--seed=1-2,-3"], {"seeds": (1, 2, -3)}),
        (["--weights=ema"], {"weights": "ema"}),
        (["--weights=shadow"], {"weights": "ema", "notes": ("--weights=shadow is now called --weights=ema",)}),
    ],
)
def test_sample_takes_what_user_interfaces_call_its_switches(words: list[str], asked: dict[str, Any]) -> None:
    from mezzotint.tasks.sample._args import parse

    found = parse(["model", "--prompt=x", *words])
    assert {name: getattr(found, name) for name in asked} == asked


def test_help_of_sample_shows_how_to_begin_with_a_picture(capsys: Captured) -> None:
    assert main(["sample", "--help"]) == 0
    said = capsys.readouterr().out
    assert "img2img" in said
    assert "sample.image=photo.png sample.strength=0.6" in said


@pytest.mark.parametrize(
    ("prompts", "shown"),
    [
        (["a {red|blue} fox"], "{red|blue}"),
        (["a (fox:1.4)", "a (fox:1.4), (hare: .5)"], "(fox:1.4), (hare: .5)"),
        (["<lora:fox:1> a __colour__ fox"], "<lora:fox:1>, __colour__"),
        (["{a|b} {c|d} {e|f} {g|h}"], "{a|b}, {c|d}, {e|f} and 1 more"),
    ],
)
def test_signs_of_other_programs_in_prompts_are_told_once(prompts: list[str], shown: str) -> None:
    assert cleaning.sign_notes(prompts) == [
        f"prompts are taken as plain text, so that nothing is chosen or weighted by {shown}"
    ]


@pytest.mark.parametrize("prompt", ["a fox (in snow)", "16:9 {wide}", "(portrait: a fox)", "snake_case"])
def test_plain_prompts_are_not_remarked_upon(prompt: str) -> None:
    assert cleaning.sign_notes([prompt]) == []


def test_sample_tells_of_signs_and_of_what_the_model_knows(here: Path, capsys: Captured) -> None:
    line = ["sample", "mezzotint-mini", "--prompt=a {red|blue} star", "--negative=(x:2)", "--size=16", "--steps=1"]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert said.count("prompts are taken as plain text") == 1
    assert "mezzotint-mini knows coloured shapes in their places" in said


def test_only_models_that_ship_say_what_they_know(tmp_path: Path) -> None:
    mini = ASSETS / "models" / "mezzotint-mini"
    assert len(knowledge(mini)) == 1
    assert knowledge(ASSETS / "models" / "tiny-sd") == []
    shutil.copyfile(mini / "README.md", tmp_path / "README.md")
    assert knowledge(tmp_path) == []


# --- check --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(2):
        Image.new("RGB", (16, 16), (200 * number, 90, 90)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"picture {number}")
    return folder


@pytest.fixture(autouse=True)
def _unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations are not measured here: test_check_memory.py does."""
    monkeypatch.setattr(Outline, "activations", lambda self, size, samples: Activations(samples, 1000 * samples, 0))


@pytest.fixture
def line(pictures: Path, tmp_path: Path) -> list[str]:
    """A line that is checked within a second."""
    return line_in(tmp_path, pictures)


def line_in(root: Path, pictures: Path) -> list[str]:
    return [
        "tiny_cpu", f"data.path={pictures}", f"data.cache.path={root / 'cache'}", f"run.folder={root / 'run'}",
        "data.resolution=16", "data.buckets.step=8", "data.batch_size=2", "data.workers=0", "run.device=cpu",
        "run.steps=1", "run.tensorboard=false", "run.preview.every=null",
    ]  # fmt: skip


def test_check_ends_with_whether_a_step_fits_and_with_a_status_of_its_own(
    line: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "_memory_at_hand", lambda device, cap: 1000)
    assert main(["check", *line]) == 5
    said = " ".join(capsys.readouterr().out.split())
    assert said.partition("does not fit: ")[2].startswith("a step's peak is ")
    assert "more than the 1 kB that are free on cpu; set run.micro_batch=1 (the mathematics stays the same)" in said
    found = check.check(read(line[0], line[1:]))
    assert page.document(found)["fits"] is False
    found.at_hand = 10**12
    last = page.page(found)[-1]
    assert last.startswith("fits: a step's peak is ")
    assert last.endswith(" MB of the 1 TB that are free on cpu")
    found.problems.append(RecipeError("something"))
    assert "fits: " not in page.page(found)[-1], "what is wrong counts before what fits"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "set run.micro_batch=1 (the mathematics stays the same), set run.recompute.enabled=true, or take a data."),
        (["run.recompute.enabled=true"], "set run.micro_batch=1 (the mathematics stays the same), or take a data."),
        (["run.micro_batch=4"], "lower run.micro_batch below 4 (the mathematics stays the same), set run.recompute"),
        (["run.micro_batch=1", "run.recompute.enabled=true"], "take a data.resolution below 512"),
        (["data.batch_size=1"], "set run.recompute.enabled=true, or take a data.resolution below 512"),
    ],
)
def test_advice_for_less_memory_leaves_out_what_the_recipe_has(settings: list[str], words: str) -> None:
    recipe = read_text("data: {batch_size: 8}", overrides=settings).recipe
    said = advice.less_memory(recipe)
    assert said.startswith(words)
    assert ("recompute" in said) != recipe.run.recompute.enabled


def test_a_shortage_of_memory_advises_what_is_not_done_yet(tmp_path: Path) -> None:
    recipe = read_text("run: {micro_batch: 1, recompute: {enabled: true}}").recipe
    device: Any = SimpleNamespace(device="cuda:0")
    of_any = assemble.named_shortage("here", advice.less_memory(recipe))
    for shortage in (named_failures(device, RunFolder(tmp_path), "", recipe), of_any):
        with pytest.raises(OutOfMemory) as caught, shortage:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        assert str(caught.value).endswith("Tried to allocate 2 GiB); take a data.resolution below 512")
        assert caught.value.exit_status == 5


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("model.path=missing", "E1401", "missing is not there"),
        ("data.path=missing", "E1201", "missing: does not exist"),
        ("model.path=x.gguf", "E1402", "it is a GGUF file"),
        ("model.path=plain", "E1406", "plain: is a folder without model_index.json"),
        ("run.wandb.mode=online", "E1063", "the package wandb is not installed"),
    ],
)
def test_a_wrong_path_is_one_problem_and_stands_first(
    word: str, code: str, said: str, line: list[str], here: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    (here / "x.gguf").write_bytes(b"GGUF\x03" + b"\0" * 60)
    assert main(["check", *line, word]) == 2
    out, err = capsys.readouterr()
    assert err.count("error[") == 1
    assert err.startswith(f"error[{code}]: ")
    assert said in err
    assert (out == "") == ("path" in word)


def test_a_package_that_is_missing_is_told_before_anything_is_encoded(
    line: list[str], tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", *line, "run.wandb.mode=online", "data.cache.latents=true"]) == 2
    assert "E1063" in capsys.readouterr().err
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def begun(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], str]:
    """A run that is done, in the folder `run`: where it lies, its line, and what it said."""
    root = tmp_path_factory.mktemp("begun")
    words = line_in(root, pictures)
    said = io.StringIO()
    with contextlib.chdir(root), contextlib.redirect_stdout(said):
        assert main(["train", *words, "objective.loss=l1"]) == 0
    return root, words, said.getvalue()


def test_the_end_of_a_run_says_which_model_to_use_and_what_to_type(begun: tuple[Path, list[str], str]) -> None:
    root, _, said = begun
    first, second = [row for row in said.splitlines() if row.startswith(("  model        ", "  or "))]
    assert first.endswith("step-00000001-ema (the average of the weights, usually the better one)")
    assert second.endswith("step-00000001 (the weights of the last step)")
    assert said.splitlines()[-1] == "to draw: mezzotint sample run --prompt='…'"
    assert "steps         1, the last in epoch 1\n" in (root / "run" / "logs" / "report.txt").read_text()


def test_another_recipe_or_other_pictures_in_a_runs_folder_are_told_by_check_before(
    begun: tuple[Path, list[str], str], pictures: Path, tmp_path: Path, capsys: Captured
) -> None:
    _, words, _ = begun
    beside = "\n  or begin a new run beside it: run.folder=FOLDER\n"
    told = []
    for verb in ("check", "train"):
        assert main([verb, *words, "optim.lr=0.5"]) == 2
        told.append(capsys.readouterr().err)
    assert told[0] == told[1], "check says before what train would say"
    assert told[0].endswith(beside)
    assert "  given    optim.lr        E1510 is 0.5, the checkpoint was made with 0.001; put it back, or" in told[0]
    assert "  default  objective.loss  E1510 is 'mse', the checkpoint was made with 'l1'; put it back" in told[0]

    others = tmp_path / "others"
    shutil.copytree(pictures, others)
    (others / "0.txt").write_text("another caption")
    told = []
    for verb in ("check", "train"):
        assert main([verb, *words, f"data.path={others}", "objective.loss=l1"]) == 2
        told.append(capsys.readouterr().err)
    assert told[0] == told[1]
    assert "  given  data.path  E1513 pictures, captions or repeats are not those that" in told[0]
    assert told[0].endswith(beside)


def test_the_folder_of_a_run_stands_for_its_recipe_and_goes_on(
    begun: tuple[Path, list[str], str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(begun[0])
    assert main(["train", "run", "data.flips=0.25"]) == 2
    assert "run/recipe.yaml has 1 problem\n  given  data.flips  E1001" in capsys.readouterr().err
    assert main(["train", "run"]) == 0
    assert "step-00000001 is the end of this run" in capsys.readouterr().out


# --- models of another family -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "model", "words"),
    [
        ("sd15", "sdxl", ("looks like SDXL (", "family sd trains", "; write model.family=sdxl")),
        ("sdxl", "sd1", ("looks like SD 1.x (one text encoder", "; write model.family=sd\n")),
        ("sdxl", "sd2", ("looks like SD 2.x (one text encoder", "; write model.family=sd\n")),
    ],
)
def test_a_folder_of_another_family_says_which(
    recipe: str, model: str, words: tuple[str, ...], line: list[str], capsys: Captured
) -> None:
    assert main(["check", recipe, *line[1:], f"model.path={model}"]) == 2
    err = capsys.readouterr().err
    for part in words:
        assert part in err


def test_a_family_is_named_only_where_it_trains_the_model() -> None:
    assert kinds.other_family({"unet": 1}, {"cross_attention_dim": 768}, "sdxl") == "sd"
    assert kinds.other_family({"unet": 1}, {"cross_attention_dim": 768, "in_channels": 9}, "sdxl") is None
    assert kinds.other_family({"transformer": 1}, {}, "sdxl") is None
    assert kinds.other_family({"unet": 1}, {"cross_attention_dim": 768}, "sd") is None
