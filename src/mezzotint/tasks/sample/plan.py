"""The images that a command line of `sample` requests, planned before a model is opened: rows and columns of the
contact sheet, seeds, file names. Errors are reported at once: nothing here imports torch."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from mezzotint import durable, outside
from mezzotint.assets import MODELS
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.sampling.prompt_file import NEW_EACH_TIME, Line
from mezzotint.settings import weights_formats
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import Reading, read, read_text, resolve_path, resolve_paths, shipped_recipes
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.tasks.sample.args import SampleArgs, read_file

CONTACT = "contact.png"
"""The contact sheet, or the first of several."""

ELSEWHERE = "give another folder with --out"
"""The advice for an existing file."""

_EVERY_GRID = 8  # pixels; the image sides of every model are multiples of it


@dataclass(frozen=True, slots=True)
class PlannedImage:
    """One image. line: its prompt and the options of its line. row, column: its position on the contact sheet.
    column_size: width and height of its column; None takes the recipe's or the model's. index: addresses its noise
    together with the seed. stem: its file name without the suffix."""

    line: Line
    row: int
    column: int
    column_size: tuple[int, int] | None
    seed: int
    guidance: float
    index: int
    stem: str

    def size(self, usual: tuple[int, int]) -> tuple[int, int]:
        """Width and height. usual: if neither line nor column sets them."""
        return self.line.size(*(self.column_size or usual))


@dataclass(frozen=True, slots=True)
class SampleSource:
    """What to sample from. path: of the model, the run, or a run's checkpoint; unused for a recipe. reading: of the
    recipe whose settings apply."""

    kind: Literal["model", "run", "checkpoint", "recipe"]
    path: Path
    reading: Reading


def resolve_source(argument: str, overrides: Sequence[str]) -> SampleSource:
    """What an argument refers to: a model's folder or file or the name of a shipped one, a run folder, a
    checkpoint in it, or a recipe. Raises RecipeError E1074 for none of these, and as the recipe's reader."""
    path = Path(argument).expanduser()
    if (path / "checkpoints").is_dir():  # first: a run has a manifest, too
        return SampleSource("run", path.absolute(), _recipe_of(path.absolute(), argument, overrides))
    if (path / "manifest.json").is_file():
        return SampleSource(
            "checkpoint", path.absolute(), _recipe_of(path.absolute().parent.parent, argument, overrides)
        )
    model = resolve_path(path, None, shipped=MODELS)
    names = (
        "model_index.json",
        "config.json",
        "pytorch_lora_weights.safetensors",
    )  # the last is refused when it is opened
    is_model = any((model / name).exists() for name in names)
    if is_model or (model.is_file() and model.suffix.lower() in weights_formats.readable_suffixes()):
        return SampleSource("model", model, read_text("schema: 1", argument, overrides))
    if path.is_dir():
        raise RecipeError(
            f"{argument} is a folder, but neither a model (it has no model_index.json) nor a run (it has no "
            "checkpoints)",
            code="E1074",
        )
    try:
        return SampleSource("recipe", path, read(argument, overrides))
    except RecipeError as error:
        if error.code != "E1011" or outside.describe_file_kind(path):
            raise
        hint = did_you_mean(argument, _list_names(), "`mezzotint ls` lists what ships")
        hint = (
            f"a prompt is written mezzotint sample MODEL --prompt={shlex.quote(argument)}" if " " in argument else hint
        )
        raise RecipeError(
            f"{argument} is neither a model, nor a run folder, nor a recipe (looked in {Path.cwd()} and in what "
            f"ships); {hint}",
            code="E1074",
        ) from None


def _list_names() -> list[str]:
    """Known names to sample from: what ships, and the runs of the current folder."""
    shipped = [*(folder.name for folder in MODELS.iterdir()), *shipped_recipes()]
    return [*shipped, *(str(path.parent) for path in Path("runs").glob("*/checkpoints"))]


def _recipe_of(run: Path, argument: str, overrides: Sequence[str]) -> Reading:
    if not (run / "recipe.yaml").is_file():
        raise RecipeError(f"{argument}: {run / 'recipe.yaml'} is missing, which records what was trained", code="E1074")
    return read(run / "recipe.yaml", overrides)


def choose_model(args: SampleArgs) -> SampleSource:
    """What to sample from, after all checks that need no model. Raises RecipeError: as `resolve_source`, E1007 a size,
    E1071 existing images, E1072 no prompt, E1073 a prompt file."""
    source = resolve_source(args.source, args.overrides)
    lines, recipe = lines_of(args, resolve_paths(source.reading))
    planned = plan(args, lines, recipe.sample, lambda _: None)
    for width, height in args.sizes:
        refuse_sides(width, height, _EVERY_GRID)
    if args.out is not None and not args.numbered:
        names = [image.stem + ending for image in planned for ending in (".png", ".mp4")]
        refuse_taken(args.out, names, replaces=args.replaces)
    return source


def lines_of(args: SampleArgs, recipe: Recipe) -> tuple[tuple[Line, ...], Recipe]:
    """The prompts, and the recipe with the settings of its prompt file, which the command line overrides. Raises
    RecipeError E1072 without a prompt, E1073."""
    lines = args.lines or tuple(Line(prompt) for prompt in recipe.sample.prompts)
    if not args.lines and recipe.sample.prompt_file is not None:
        file = read_file(recipe.sample.prompt_file)
        typed = {setting.partition("=")[0] for setting in args.overrides}
        settings = {name: value for name, value in file.settings.items() if f"sample.{name}" not in typed}
        recipe = with_values(recipe, {f"sample.{name}": value for name, value in settings.items()})
        lines = file.lines
    if not lines:
        raise RecipeError(
            f"mezzotint sample: no prompt is given and {args.source} has none; write --prompt='a red fox'", code="E1072"
        )
    return lines, recipe


def plan(
    args: SampleArgs, lines: Sequence[Line], settings: SampleSettings, say: Callable[[str], None]
) -> list[PlannedImage]:  # fmt: skip
    """Every image once: a line with its own size or seed is not repeated for each requested one. A seed of -1 becomes a
    new seed, which is printed."""
    seeds = [_resolve_seed(seed, "", say) for seed in args.seeds or (settings.seed,)]
    line_seeds = {
        row: _resolve_seed(line.seed, line.prompt, say) for row, line in enumerate(lines) if line.seed is not None
    }
    kinds = [
        list(product([line_seeds[row]] if row in line_seeds else seeds, line.guidance or settings.guidance))
        for row, line in enumerate(lines)
    ]
    across, digits = max(map(len, kinds)), max(3, len(str(max(1, len(lines) - 1))))
    images: dict[tuple[object, ...], PlannedImage] = {}
    for group, size in enumerate(args.sizes or (None,)):
        for row, line in enumerate(lines):
            # with its own seed a line's noise does not depend on its position in the file
            index = args.index + (row if row not in line_seeds else 0)
            for offset, (seed, guidance) in enumerate(kinds[row]):
                column = group * across + offset
                stem = f"{row:0{digits}d}-{column}-seed{seed}"
                image = PlannedImage(line, row, column, size, seed, guidance, index, stem)
                images.setdefault((row, image.size(size) if size else None, seed, guidance), image)
    return list(images.values())


def refuse_sides(width: int, height: int, multiple: int, where: str = "") -> None:
    """Raises RecipeError E1007 for a size that a model cannot generate. multiple: of the sides of its images. where:
    the line of a file that requests it."""
    if width % multiple or height % multiple or min(width, height) < multiple:
        near = "x".join(str(max(multiple, round(side / multiple) * multiple)) for side in (width, height))
        raise RecipeError(
            f"{where + ': ' if where else ''}an image of {width}x{height} cannot be generated: its sides must be "
            f"multiples of {multiple}; {near} is near",
            code="E1007",
        )


def refuse_taken(out: Path, names: Sequence[str], *, replaces: bool) -> None:
    """Raises RecipeError E1071 if one of the files, or a contact sheet, already exists."""
    for name in (*names, CONTACT):
        durable.refuse_taken(out / name, code="E1071", remedy=ELSEWHERE, replaces=replaces)


def _resolve_seed(seed: int, prompt: str, say: Callable[[str], None]) -> int:
    if seed != NEW_EACH_TIME:
        return seed
    new = secrets.randbelow(2**31)
    say(f"seed -1{f' of {prompt[:60]!r}' if prompt else ''}: a new one, {new}")
    return new
