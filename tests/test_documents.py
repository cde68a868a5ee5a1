"""The documentation is correct: links, recipes and command lines are valid, examples run, lists are complete."""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from huggingface_hub.utils import filter_repo_objects

from mezzotint import errors, registry
from mezzotint.data.catalogue import catalogue
from mezzotint.data.media import colour, decoding
from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.base import change_of
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.reading.foreign_names import meaning_of
from mezzotint.settings.reading.paths import by_path, owner, sections
from mezzotint.settings.reading.read import Reading, read, read_text, shipped_recipes
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.reference import error_codes
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import StepReport
from mezzotint.tasks import cp, explain, ls, schema
from mezzotint.tasks.queue import queue
from mezzotint.tasks.reading import foreign
from mezzotint.tasks.reading.command_line import parse
from mezzotint.tasks.reading.commands import COMMANDS, Command
from mezzotint.tasks.sample import args as sample_args
from mezzotint.tasks.weights import adapter_files, merge
from mezzotint.tasks.weights import args as convert_args
from mezzotint.training.callbacks.metrics_log import MetricsLog
from mezzotint.training.checkpoints import state
from mezzotint.training.progress import Progress
from mezzotint.weights.model_files import ModelFiles
from support.installed import install

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "mezzotint"
DOCS = ROOT / "docs"
USER_FOLDERS = ("start", "guides", "coming-from", "reference")
DEVELOPER_PAGES = ("faults", "gpu-path", "journey", "structure")
"""Pages for developers of Mezzotint."""
GUIDES = sorted(SOURCE.glob("compat/*/guide.md"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *GUIDES])
TEXTS = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
EXAMPLES = {
    "data/formats/caption_table.py", "settings/formats/caption_table.py", "tasks/history.py", "families/dimmed.py",
    "settings/families/dimmed.py",
}  # fmt: skip
"""Files that readers of a page create."""
FOREIGN = re.compile(r"configs/(training|inference)/sd_xl_\w+\.yaml")
"""Files of other trainers."""
NOT_SETTINGS = {"run.log"}
REMOVED_SETTINGS = {"data.holdout.rule", "data.cache.batches", "optim.ema.passes"}
"""Settings that docs/reference/removed.md lists."""
PLACEHOLDER = re.compile(r"…|\b(?:VERB|COMMAND|PATH|CODE|RECIPE|NAME|PATTERN)\b")

Load = Callable[[str, str], ModuleType]


def fences(text: str) -> Iterator[tuple[str, str]]:
    """(info string, content) of each fenced block."""
    for block in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        yield block[1].strip(), block[2]


def blocks(kind: str) -> list[Any]:
    return [
        pytest.param(words, body, id=f"{name}-{number}")
        for name, text in TEXTS.items()
        for number, (words, body) in enumerate(fences(text))
        if words.split()[:1] == [kind]
    ]


def block(page: str, words: str) -> str:
    """The only block of a page with this info string."""
    (body,) = [body for language, body in fences(TEXTS[page]) if language == words]
    return body


def inline(text: str) -> Iterator[str]:
    """Texts between backticks outside of blocks."""
    for code in re.finditer(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        yield code[1]


def table_rows(text: str, first: str) -> list[dict[str, str]]:
    """The rows of tables whose first column has this header, by header, without backticks."""
    rows: list[dict[str, str]] = []
    headers: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip().replace("`", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells or cells[0] == first:
            headers = cells
        elif headers and not set(cells[0]) <= set("-"):
            rows.append(dict(zip(headers, cells, strict=True)))
    return rows


def lines_with(text: str, first: str) -> list[str]:
    """First cells, without backticks, of the rows of tables whose first column has this header."""
    return [row[first] for row in table_rows(text, first)]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Imports a text as a module, through a file."""

    def module_of(name: str, text: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(text, "utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return module_of


# --- links, names, paths ----------------------------------------------------------------------------------------------


def test_every_link_has_an_existing_target() -> None:
    links = [(name, target) for name, text in TEXTS.items() for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    dead = [link for link in links if not link[1].startswith(("http://", "https://")) and not link_exists(*link)]
    assert dead == []


def link_exists(name: str, target: str) -> bool:
    path, _, heading = target.partition("#")
    linked = (ROOT / name).parent / path if path else ROOT / name
    if not linked.exists() or not heading:
        return linked.exists()
    titles = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), flags=re.MULTILINE)
    return heading in {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}


def test_every_page_is_in_an_index_and_every_image_on_a_page() -> None:
    indexes, listed = ["docs/README.md"], {DOCS / "README.md"}
    for name in indexes:  # grows: an index links to those of its subfolders
        linked = {path for path in linked_from(name) if path.is_relative_to((ROOT / name).parent)}
        indexes += sorted(path.relative_to(ROOT).as_posix() for path in linked - listed if path.name == "README.md")
        listed |= linked
    assert {f"docs/{folder}/README.md" for folder in USER_FOLDERS} <= set(indexes)
    folders = {path.name for path in DOCS.iterdir() if path.is_dir()}
    assert folders == {*USER_FOLDERS, "decisions", "how-to-add", "images"}
    assert {page.stem for page in DOCS.glob("*.md")} == {"README", *DEVELOPER_PAGES}, "move it to a folder for users"
    shown = {image for name in TEXTS for image in linked_from(name) if image.suffix == ".png"}
    figures = {image.with_suffix(".json") for image in shown}  # the figures of an image are in a JSON file
    files = {page for page in DOCS.rglob("*") if page.is_file()}
    assert files <= listed | shown | figures, "list it in a README.md of docs/"
    assert set(GUIDES) <= linked_from("docs/coming-from/README.md")


def test_readme_and_pages_are_short() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 100
    sizes = {name: len(text.encode()) for name, text in TEXTS.items() if name.startswith(("docs/", "src/"))}
    tables = "docs/reference/options/"  # a row for each option of a trainer
    assert {name: size for name, size in sizes.items() if size > (40_000 if name.startswith(tables) else 20_000)} == {}


def linked_from(name: str) -> set[Path]:
    folder = (ROOT / name).parent
    return {(folder / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)\)", TEXTS[name])}


def test_settings_codes_and_files_named_on_pages_exist() -> None:
    for name, text in TEXTS.items():
        for code in re.findall(r"\bE1\d{3}\b", text):
            assert code in error_codes(), (name, code)
        for word in inline(text):
            path = re.fullmatch(r"((?:model|data|objective|optim|run|sample)(?:\.[a-z_0-9]+)+)(?:\+?=(.*))?", word)
            is_foreign = word in foreign_keys() and name.startswith(("docs/reference/options/", "src/"))
            # a decision may name rejected settings, a changelog removed ones
            is_past = "decisions/" in name or (path and path[1] in REMOVED_SETTINGS)
            if path and word not in NOT_SETTINGS and not is_past and not is_foreign:
                assert owner(path[1]) is not None or path[1] in sections(), (name, word)
            if re.fullmatch(r"[a-z_0-9./-]+/[a-z_0-9.-]+\.(py|yaml|toml|json|txt)", word) and word not in EXAMPLES:
                there = any((base / word).exists() for base in (SOURCE, ROOT))
                assert FOREIGN.fullmatch(word) or there, (name, word)
            if re.fullmatch(r"(tests|docs|tools|recipes|benchmarks)/[\w/]*", word):
                assert (ROOT / word).is_dir(), (name, word)


@functools.cache
def foreign_keys() -> frozenset[str]:
    """Keys of other trainers' files; some look like settings."""
    dialects: list[Any] = [foreign.find_dialect(name) for name in registry.names("dialects")]
    return frozenset(row.flag for dialect in dialects for table in dialect.tables for row in table.rows)


def test_removed_settings_are_listed_and_gone() -> None:
    assert set(lines_with(TEXTS["docs/reference/removed.md"], "removed")) >= REMOVED_SETTINGS
    assert [path for path in REMOVED_SETTINGS if owner(path) is not None] == []


def test_every_extra_is_in_the_table_of_installing() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", TEXTS["docs/start/installing.md"], re.MULTILINE)) == set(extras)


def test_no_page_names_a_machine() -> None:
    assert [name for name, text in TEXTS.items() if re.search(r"(?<![\w.])/(?:work|root|tmp)/", text)] == []


# --- recipes and command lines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "body"), blocks("yaml"))
def test_every_recipe_on_a_page_is_valid(words: str, body: str) -> None:
    read_text(body)


def commands() -> list[Any]:
    """Every command line on the pages, in blocks and in text, without those with placeholders."""
    shown_commands: dict[str, None] = {}
    for text in TEXTS.values():
        shown = [line for words, body in fences(text) if words == "sh" for line in body.splitlines()]
        shown += [word for word in inline(text) if re.match(r"(mezzotint|torchrun|accelerate|make) ", word)]
        shown_commands |= dict.fromkeys(shlex.join(shlex.split(line, comments=True)) for line in shown)
    return [
        command for command in shown_commands if command and not PLACEHOLDER.search(command.replace("runs/NAME", ""))
    ]


def test_command_lines_are_found() -> None:
    assert {"make demo", "make test", "mezzotint train mini data.path=shapes run.name=first"} <= set(commands())
    assert sum("-m mezzotint" in command for command in commands()) >= 3


def test_every_command_line_on_a_page_is_valid() -> None:
    for command in commands():
        try:
            check_command_line(shlex.split(command))
        except Exception as error:
            raise AssertionError(f"{command}: {error}") from error


def check_command_line(words: list[str]) -> None:
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text("utf-8")
    elif words[0] in ("torchrun", "accelerate"):
        if "-m" in words:
            assert words[words.index("-m") + 1] == "mezzotint"
            check_arguments(words[words.index("-m") + 2 :])
    elif words[0] == "mezzotint":
        check_arguments(words[1:])


def check_arguments(words: list[str]) -> None:
    """Parses the arguments of `mezzotint`, as far as possible without data and weights."""
    if words[0].startswith("-"):
        assert words[0] in ("--help", "--version")
        return
    command = {command.name: command for command in COMMANDS}[words[0]]
    if "--as" in words:
        line = parse(words[1 : words.index(">")] if ">" in words else words[1:], command.name)
        assert line.dialect is not None
        typed = [re.sub(r"\$(\w+)", r"\1", word) for word in line.foreign]  # as the shell does
        if command.name == "translate":
            foreign.translate(line.dialect, typed, Launched())
        elif command.reads_recipe:
            foreign.read_command_line(line.dialect, typed, line.plain, Launched())
        else:
            check_arguments(
                [command.name, *foreign.find_dialect(line.dialect).translate_tool(command.name, typed)[0], *line.plain]
            )
        return
    rest = [word for word in words[1:] if word not in ("--help", ">", "recipe.schema.json")]
    assert all(command.option(word.partition("=")[0]) for word in rest if word.startswith("--")), words
    rest = [word for word in rest if not word.startswith("--")]
    match command.name:
        case "board" | "report" | "doctor":
            assert not rest or parse(words[1:], command.name).command is command
        case "explain":
            assert all(explain.explain_word(word) for word in rest)
        case "ls":
            assert set(rest) <= set(ls.list_kinds())
        case "cp":
            assert all(cp.find_shipped(word).is_file() for word in rest[:1])
        case "translate":
            line = parse(words[1 : words.index(">")] if ">" in words else words[1:], command.name) if rest else None
            assert line is None or (foreign.find_dialect(line.get("--to") or "").name and read_with([*line.plain]))
        case "schema":
            assert not rest
        case "sample":
            assert (
                not rest
                or sample_args.parse(
                    [word for word in words[1:] if not word.startswith(("--file=", "--adapter=", "--embedding="))]
                ).source
            )
        case "convert":
            assert len(rest) in (0, 2)
            assert not rest or convert_args.parse(words[1:]).destination.suffix in ("", ".safetensors", ".ckpt")
        case "merge":
            assert not rest or merge.parse(words[1:]).destination.suffix in ("", ".safetensors", ".ckpt")
        case "queue":
            assert not rest or rest[0] in queue.ACTIONS
            read_with(rest[1:] if rest[:1] == ["add"] else [])
        case "caption":
            line = parse(words[1:], command.name) if rest else None
            assert line is None or "--with" in line or "--model" in line
        case "completion":
            assert not rest or rest[0] in ("bash", "zsh", "fish")
        case "verify" | "diff" | "check-adapter":
            assert not rest or len(rest) == parse(words[1:], command.name).command.names[0]
        case "extract" | "resize":
            line = parse(words[1:], command.name) if rest else None
            assert line is None or (adapter_files.rule(line).rank and adapter_files.target(line).name)
        case _:
            assert command.reads_recipe
            read_with(rest)


def read_with(words: list[str]) -> Reading:
    """Reads a shipped recipe, or an empty one in place of a file or run of the user."""
    if not words:
        return read_text("schema: 1")
    if words[0].endswith(".yaml") or words[0].startswith("runs/"):
        return read_text("schema: 1", overrides=words[1:])
    return read(words[0], words[1:])


def test_check_of_command_lines_detects_wrong_ones() -> None:
    for wrong in ("train nosuch", "train photos optim.learning_rate=1", "explain optim.lrr", "train photos --fast"):
        with pytest.raises((RecipeError, AssertionError)):
            check_arguments(wrong.split(" "))
    with pytest.raises(KeyError):
        check_arguments(["brew"])


def test_error_message_in_first_steps_is_current() -> None:
    with pytest.raises(RecipeError) as caught:
        read("photos", ["optim.learning_rate=1", "data.batch_size=0"])
    assert str(caught.value) + "\n" == block("docs/start/first-steps.md", "text")


# --- guides that name values ------------------------------------------------------------------------------------------

TRAINING, TERMS = "docs/guides/which-training.md", "docs/guides/terms.md"
OTHER_RECIPES = {"mini", "mini-from-scratch", "mini-lora", "photos", "tiny_cpu", "tiny_clips_cpu", "sd15-everydream"}
"""Recipes for a CPU or for data of another trainer."""


def test_values_of_which_training_are_those_of_the_recipes() -> None:
    rows = table_rows(TEXTS[TRAINING], "recipe")
    assert sorted(row["recipe"] for row in rows) == sorted(shipped_recipes().keys() - OTHER_RECIPES)
    for row in rows:
        recipe = read(row["recipe"]).recipe
        adapter, run = recipe.model.adapter, recipe.run
        assert row["steps"] == (str(run.steps) if run.steps else f"{run.epochs:g} epochs"), row
        assert int(row["images a step"]) == recipe.data.batch_size * recipe.optim.accumulation, row
        assert float(row["rate"]) == recipe.optim.lr, row
        assert row.get("rank") == (str(adapter.rank) if recipe.model.has_adapter else None), row
        assert adapter.alpha is None, row
        bits = {"int8": "8 bits", "nf4": "4 bits"}.get(run.frozen_dtype, "")
        assert row["model"].partition(" in ")[2] == bits, row


def test_memory_in_which_training_is_that_of_the_recipes_and_fits_the_card() -> None:
    cards = (8, 12, 16, 24, 48, 80)
    for row in table_rows(TEXTS[TRAINING], "recipe"):
        head = shipped_recipes()[row["recipe"]].read_text("utf-8").partition("schema:")[0]
        predicted = re.search(r"predicts it: ([\d.]+) GB", head)
        assert predicted, row
        memory, _, host = row["memory"].partition(" + ")
        assert memory == f"{predicted[1]} GB", row
        if host:  # with blocks in host memory any card does: the one that the recipe is for
            assert host.removesuffix(" of the host") + " of host memory" in head, row
            assert re.search(rf"a GPU of {row['card']}", head), row
        else:
            assert row["card"] == f"{next(card for card in cards if 0.95 * card >= float(predicted[1]))} GB", row


def test_each_goal_of_which_training_names_recipes_that_fit_the_card() -> None:
    cards = {row["recipe"]: row["card"] for row in table_rows(TEXTS[TRAINING], "recipe")}
    goals = re.findall(r"^\| (?!I want).*\|$", TEXTS[TRAINING].partition("## ")[0], re.MULTILINE)
    sizes = (8, 12, 16, 80)  # the last column is for 24 GB and more, and names other cards itself
    named = [
        (name, size)
        for goal in goals
        for cell, size in zip(goal.split("|")[2:-1], sizes, strict=True)
        for name in re.findall(r"`([a-z0-9-]+)`", cell)
    ]
    assert len(named) >= 15
    assert [(name, size) for name, size in named if int(cards[name].removesuffix(" GB")) > size] == []


def test_terms_lead_to_our_settings() -> None:
    rows = table_rows(TEXTS[TERMS], "Mezzotint")
    assert len(rows) >= 40
    for row in rows:
        for trainer in ("kohya", "OneTrainer", "diffusers"):
            if row[trainer] not in ("–", row["Mezzotint"].rpartition(".")[2]):
                known = meaning_of(row[trainer])
                assert known is not None, (trainer, row[trainer])
                assert (known.path, trainer in known.origins) == (row["Mezzotint"], True), (
                    trainer,
                    row[trainer],
                    known,
                )


def test_messages_in_troubleshooting_are_those_of_the_program() -> None:
    page = " ".join(TEXTS["docs/guides/troubleshooting.md"].split())
    source = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    source = re.sub(r'"\s*\n\s*f?"', "", source)  # strings in several lines
    for message in (
        "out of memory at step", "continuing with micro-batches of", "does not have enough memory",
        "this process ran out of memory", "skipped, not enough memory; training continues",
        "was not finite and was not applied", "steps in a row", "were not finite", "activations overflow in fp16",
        "leak: training changes", "times as much as", "the model learns blur", "has not changed in",
        "cut-captions", "empty-captions", "shared-captions", "gpu-unseen", "cpu-torch", "base_model_version",
        "trigger_phrase", "bad_steps.jsonl", "spikes.rank", "overfit.txt",
    ):  # fmt: skip
        assert message in page, message
        assert message in source, message


def test_downloads_in_first_steps_have_what_the_family_reads_and_no_single_files() -> None:
    lines = [shlex.split(line) for _, body in fences(TEXTS["docs/start/first-steps.md"]) for line in body.splitlines()
             if line.startswith(("hf download", "mezzotint train"))]  # fmt: skip
    ids = [words[2] for words in lines if words[0] == "hf"]
    assert len(ids) == 3
    for at, words in enumerate(lines):
        if words[0] != "hf":
            continue
        recipe, path = lines[at + 1][2:4]
        assert path == f"model.path={words[2]}"
        spec = family_spec(read(recipe).recipe.model.family)
        assert words[2] in spec.published or not spec.published
        options = list(zip(words[3::2], words[4::2], strict=True))
        allowed = [pattern for option, pattern in options if option == "--include"]
        ignored = [pattern for option, pattern in options if option == "--exclude"]
        weights = (
            "model.fp16.safetensors" if any("fp16" in one for one in allowed) else "model-00001-of-00002.safetensors"
        )
        needed = ["model_index.json", "scheduler/scheduler_config.json"]
        needed += [f"{part}/{name}" for part in spec.folders.values() for name in ("config.json", weights)]
        needed += [f"{part}/{name}" for part in spec.tokenizers.values() for name in ("vocab.json", "merges.txt")]
        unneeded = ["flux1-dev.safetensors", "ae.safetensors", "sd_xl_base_1.0.safetensors", "vae_1_0/" + weights]
        assert (
            list(filter_repo_objects([*needed, *unneeded], allow_patterns=allowed, ignore_patterns=ignored)) == needed
        )


# --- examples ---------------------------------------------------------------------------------------------------------


OF_NOTEBOOK = "docs/guides/python.md"
"""Its examples depend on each other: `tests/api/test_guide.py` runs them."""


@pytest.mark.parametrize(("words", "body"), [one for one in blocks("python") if not one.id.startswith(OF_NOTEBOOK)])
def test_every_example_runs(load: Load, words: str, body: str) -> None:
    assert words.split()[1:2] == ["run"]
    load("example", body)


def test_checkpoint_reader_example_reads_and_detects_damage(load: Load, tmp_path: Path) -> None:
    body = block("docs/reference/checkpoint-format.md", "python run")
    assert set(re.findall(r"^(?:import|from) (\w+)", body, flags=re.MULTILINE)) == {
        "hashlib", "json", "numpy", "pathlib", "safetensors",
    }  # fmt: skip
    page = load("reader", body)
    written = {
        "w/denoiser/a": torch.arange(6.0).view(2, 3),
        "ema/denoiser/a": torch.ones(2, 3),
        "opt.mean/denoiser/a": torch.zeros(2, 3),
        "opt.applied": torch.tensor(3.0),
        "opt.shadow_updates": torch.tensor(3.0, dtype=torch.float64),
        "scaler/scale": torch.tensor(65536.0),
    }
    values = {"progress": {"step": 3}, "recipe": {"schema": 1}}
    folder = state.write(tmp_path, step=3, tensors=written, values=values, recipe_digest="ab")
    step, tensors, read_values = page.read_checkpoint(folder)
    assert (step, read_values) == (3, values)
    assert tensors.keys() == written.keys()
    for name, tensor in written.items():
        assert torch.equal(torch.from_numpy(tensors[name]), tensor), name
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        if file.name != "manifest.json":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            with pytest.raises(ValueError, match=rf"{file.name} is damaged"):
                page.read_checkpoint(folder)
        file.write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    changes: list[dict[str, Any]] = [{"schema": 5}, {"files": {"../state.json": {}}}]
    for change in changes:
        (folder / "manifest.json").write_text(json.dumps(manifest | change), "utf-8")
        with pytest.raises(ValueError):
            page.read_checkpoint(folder)


@pytest.fixture
def caption_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Installs the format of the page as a package."""
    kinds = {"caption_table.py": "python run format", "caption_table_spec.py": "python run format-spec"}
    groups = {
        "mezzotint.formats": {"caption-table": "caption_table"},
        "mezzotint.settings.formats": {"caption-table": "caption_table_spec"},
    }
    files = {name: block("docs/how-to-add/format.md", words) for name, words in kinds.items()}
    install(tmp_path / "site", monkeypatch, files, groups)
    yield
    for name in ("caption_table", "caption_table_spec"):
        sys.modules.pop(name, None)
    format_spec.cache_clear()


@pytest.mark.usefixtures("caption_table")
def test_format_example_trains(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    names = [path.name for path in sorted(world.images.glob("*.png"))]
    lines = [f"{name}\timage {name}" for name in names[:-1]]
    (world.images / "captions.tsv").write_text("\n".join(lines), "utf-8")
    settings = DataSettings(path=(world.images,), format="caption-table", resolution=64)
    built = catalogue.build(settings, world.root / "index")
    assert [built.captions(row) for row in range(len(built))] == [(f"image {name}",) for name in names[:-1]]
    assert [path for path, _ in built.report.skipped] == names[-1:]
    assert world.train("table", data__format="caption-table", run__steps=2, data__max_skipped=1.0) == 0
    seen = {key for line in world.end("table").samples for key in json.loads(line)["keys"]}
    assert seen
    assert seen <= set(names[:-1])
    assert world.train("refused", data__format="caption-table", data__captions__source="filename") == 2
    assert "no effect with data.format=caption-table, which defines where captions are" in capsys.readouterr().err


def test_callback_example_reports_spikes_also_after_a_resume(load: Load, tmp_path: Path) -> None:
    page = load("spikes", block("docs/how-to-add/callback.md", "python run callback"))
    losses = [1.0, 2.5, 9.0, 1.0, 0.8, 12.0]

    def watched(path: Path, stop: int) -> list[dict[str, Any]]:
        callback = page.Spikes(path, 3.0)
        for step, loss in enumerate(losses):
            if step == stop:
                remembered = json.loads(json.dumps(callback.state()))
                callback = page.Spikes(path, 3.0)
                callback.load(remembered)
            assert callback.receives_delayed_reports
            callback.on_step(report(step, loss), Progress(step=step + 1, last_step=6))
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    whole = watched(tmp_path / "whole.jsonl", stop=-1)
    assert [line["step"] for line in whole] == [3, 6]
    assert whole[0]["keys"] == ["a.png"]
    assert watched(tmp_path / "parts.jsonl", stop=4) == whole


def report(step: int, loss: float) -> StepReport:
    return StepReport(
        step=step, epoch=0, loss=loss, norm=1.0, rates={"denoiser": 1e-4}, samples=4, seconds=0.5, wait_seconds=0.1,
        applied=True, overflow=False, keys=("a.png",), timesteps=(7.0,), losses=(loss,),
        group_losses={"instance": loss, "class": loss},
    )  # fmt: skip


def test_setting_example_has_help_and_a_resume_rule(load: Load) -> None:
    setting = load("setting", block("docs/how-to-add/setting.md", "python run setting")).ObjectiveSettings
    assert change_of(setting, "input_perturbation") == "allow"
    assert setting.model_fields["input_perturbation"].description.startswith("Adds this much more noise")


def test_command_example_prints_the_history(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = load("history", block("docs/how-to-add/command.md", "python run command"))
    shown = block("docs/how-to-add/command.md", "python run entry")
    entry = load("entry", shown.replace("\nCommand(", "\nENTRY = Command(")).ENTRY
    monkeypatch.setattr("mezzotint.tasks.reading.command_line.COMMANDS", (*COMMANDS, entry))
    folder = RunFolder(tmp_path / "run").open()
    folder.record("started", step=0)
    folder.record("finished", step=20)
    assert page.run([str(folder.path)]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["started", "finished"]
    assert page.run([str(folder.path), "--last", "1"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["finished"]
    with pytest.raises(RecipeError, match="write mezzotint history FOLDER"):
        page.run([])
    assert isinstance(entry, Command)
    assert len(entry.examples) == 3


# --- lists ------------------------------------------------------------------------------------------------------------


def written_pages() -> dict[Path, str]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(ROOT / "tools")
        pages: dict[Path, str] = importlib.import_module("write_docs").pages()
    return pages


def test_generated_pages_are_current() -> None:
    for path, text in written_pages().items():
        assert path.read_text("utf-8") == text, f"{path.name} is out of date; run: make docs"


def test_generated_pages_list_every_code_setting_and_error() -> None:
    pages = {path.relative_to(ROOT).as_posix(): text for path, text in written_pages().items()}
    written = [text for name, text in pages.items() if name.startswith("docs/reference/errors/")]
    codes = [code for text in written for code in re.findall(r"^\| `(E\d{4})` \|", text, flags=re.MULTILINE)]
    assert sorted(codes) == sorted(error_codes())
    rules = pages["docs/guides/resume.md"].partition("<!-- begin rules")[2]
    assert set(by_path()) == set(re.findall(r"`([^`]+)`", rules))
    for kind in MezzotintError.__subclasses__():
        assert f"| `{kind.__name__}` |" in pages["docs/reference/errors/README.md"]


def test_generated_folders_contain_only_generated_files() -> None:
    written = written_pages().keys()
    for folder in ("recipe", "errors", "options"):
        assert set((DOCS / "reference" / folder).iterdir()) <= written, "delete what no longer has a source"


def test_figures_in_the_readme_are_those_of_the_tests() -> None:
    readme = " ".join(TEXTS["README.md"].split())
    runs, kills = re.findall(
        r'"seed", range\((\d+, \d+)\)\).*?kills=(\d)',
        (ROOT / "tests/faults/test_kills.py").read_text("utf-8"),
        re.DOTALL,
    )[0]
    first, end = map(int, runs.split(", "))
    assert (end - first, int(kills)) == (50, 3)
    assert "kills 50 small runs three times each" in readme
    parity = (ROOT / "tests/compat/diffusers_scripts/test_training_step_parity.py").read_text("utf-8")
    cases = re.search(r"sorted\(CASES\) == (\[.*?\])", parity, re.DOTALL)
    roundings = re.search(r"^ROUNDINGS = (\{.*\})", parity, re.MULTILINE)
    assert cases
    assert roundings
    assert len(ast.literal_eval(cases[1])) == 7
    assert "in seven variants" in readme
    assert max(ast.literal_eval(roundings[1]).values()) == 256
    assert "at most 256 float32 roundings" in readme
    rows = [row for name in registry.names("dialects") for row in foreign.find_dialect(name).rows]
    assert len(rows) > 1000
    scripts = [name for name in registry.names("dialects") for name in foreign.find_dialect(name).scripts or (name,)]
    assert len(scripts) >= 30
    assert "Thirty scripts with more than 1,000 options" in readme


def test_first_steps_show_every_command_that_writes_something() -> None:
    pages = (TEXTS["README.md"], TEXTS["docs/start/first-steps.md"])
    lines = [line for text in pages for words, body in fences(text) if words == "sh" for line in body.splitlines()]
    shown = {line.split()[1] for line in lines if line.startswith("mezzotint ")}
    assert {command.name for command in COMMANDS} - shown <= {"cache", "schema", "ls", "migrate"}


def test_every_exit_status_is_listed() -> None:
    listed = {row for row in lines_with(TEXTS["docs/reference/exit-status.md"], "status") if row.isdigit()}
    known = {kind.exit_status for kind in MezzotintError.__subclasses__() if kind is not errors.Stopped}
    assert listed == {"0", "1", *map(str, known)}


def test_source_tree_on_the_page_is_current() -> None:
    drawn = set(re.findall(r"[├└]─ ([\w.]+/?)", block("docs/structure.md", "tree")))
    there = {p.name for p in SOURCE.glob("*.py") if not p.name.startswith("__")}
    there |= {f"{p.name}/" for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert drawn == there


def test_layers_on_the_page_are_those_of_the_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    there = [[m for m in re.findall(r"\w+", layer) if _is_there(m)] for layer in layers]
    drawn = [re.findall(r"\w+", line) for line in block("docs/structure.md", "floors").splitlines()]
    assert drawn == there


def _is_there(module: str) -> bool:
    return (SOURCE / module / "__init__.py").exists() or (SOURCE / f"{module}.py").exists()


def test_functions_named_in_the_journey_exist() -> None:
    rows = re.findall(r"^\|[^|]*\| `([\w/]+\.py)` \| `(\w+)` \|", TEXTS["docs/journey.md"], flags=re.MULTILINE)
    assert len(rows) >= 18
    for file, function in rows:
        assert re.search(rf"^\s*(?:def|class) {function}\b", (SOURCE / file).read_text("utf-8"), re.MULTILINE), function


def test_types_in_the_journey_are_those_of_stages() -> None:
    source = (SOURCE / "stages.py").read_text("utf-8")
    assert set(lines_with(TEXTS["docs/journey.md"], "type")) == set(re.findall(r"^class (\w+)", source, re.MULTILINE))


def test_required_methods_of_families_and_runtimes_are_listed() -> None:
    page = TEXTS["docs/how-to-add/family.md"]
    methods = {word for row in lines_with(page, "method") for word in row.split(", ")}
    assert methods == set(ModelFamily.__abstractmethods__)
    listed = {word for row in lines_with(page, "asked of files") for word in row.split(", ")}
    assert listed == set(ModelFiles.__abstractmethods__)
    runtime = TEXTS["docs/how-to-add/runtime.md"].partition("these methods:")[2].partition(".")[0]
    methods = {name for name, value in vars(Runtime).items() if callable(value) and not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", runtime)) == methods


def test_every_metrics_key_is_documented(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    log = MetricsLog(folder, 1)
    log.on_step(report(0, 0.5), Progress(step=1, last_step=1))
    log.close()
    (line,) = folder.metrics.read_text("utf-8").splitlines()
    groups = {"lr": "lr/GROUP", "loss_at": "loss_at/quartile_Q"}
    keys = {groups.get(key.partition("/")[0], key) for key in json.loads(line)}
    keys = {"loss/by_timestep/N" if key.startswith("loss/by_timestep/") else key for key in keys}
    assert {key for row in lines_with(TEXTS["docs/reference/metrics.md"], "key") for key in row.split(", ")} == keys


def test_every_file_of_a_run_folder_is_documented() -> None:
    listed = "\n".join(lines_with(TEXTS["docs/reference/run-folder.md"], "what"))
    paths = [path for path in vars(RunFolder(Path("run"))).values() if isinstance(path, Path) and path.name != "run"]
    assert len(paths) >= 8, paths
    for path in [*paths, Path("lock"), Path("environment.json"), Path("data_report.jsonl")]:
        assert path.name in listed, path


def test_image_suffixes_and_conversions_are_documented() -> None:
    page = TEXTS["docs/guides/data.md"]
    (shown,) = re.findall(r"Endings looked at: `([^`]+)`", page)
    assert set(shown.split()) == decoding.SUFFIXES
    said = {"TURNED": "EXIF", "ALPHA": "transparency", "DEEP": "16-bit", "CMYK": "CMYK", "PROFILE": "colour profile"}
    said |= {
        "BAD_PROFILE": "broken colour profile",
        "FIRST_FRAME": "first frame",
        "COLOUR_SPACE": "YCbCr",
        "SIDEWAYS": "onto its side",
    }
    said |= {"VARIABLE_RATE": "variable rate"}
    assert said.keys() == colour.Conversion.__members__.keys()
    for words in said.values():
        assert words in page, words


def test_every_shipped_recipe_is_in_the_changelog() -> None:
    for name in shipped_recipes():
        assert f"`{name}`" in TEXTS["CHANGELOG.md"]
    for command in COMMANDS:
        assert f"`{command.name}`" in TEXTS["CHANGELOG.md"]


def test_schema_file_is_the_output_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert schema.run([]) == 0
    assert capsys.readouterr().out == (DOCS / "recipe.schema.json").read_text("utf-8")
