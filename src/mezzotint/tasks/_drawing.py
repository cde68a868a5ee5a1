"""Drawing for the verb `sample`: requests from a command line, pictures into a folder, a contact sheet."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from mezzotint import durable
from mezzotint.errors import OutOfMemory, RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.counting import counted
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sample import SampleSettings
from mezzotint.sampling import grids, pictures
from mezzotint.sampling.prompt_file import NEW_EACH_TIME, Line
from mezzotint.sampling.sample import Request, is_unconditional
from mezzotint.shapes import Size
from mezzotint.tasks import _clips, _prompts
from mezzotint.tasks._places import free_folder
from mezzotint.tasks._sample_model import Model, find, open_model
from mezzotint.tasks._sample_stages import drawn, size_of
from mezzotint.tasks._sample_words import Asked, read_file

_TILE = 384  # pixels of a picture's longer side on a contact sheet
_ROWS, _COLUMNS = 24, 8  # of a contact sheet; more pictures make more sheets

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One picture. row, column: its place on the contact sheet. name: its file's."""

    request: Request
    row: int
    column: int
    name: str


def draw(asked: Asked, say: Callable[[str], None]) -> Iterator[str]:
    """Draws everything and yields the lines that say where it lies. say: gets sentences on the way."""
    source = find(asked.place, asked.overrides)
    for sentence in (*asked.notes, *source.said):
        say(sentence)
    lines, recipe = _cleaned(*_lines_of(asked, source.recipe))
    if not lines:
        raise RecipeError(
            f"mezzotint sample: no prompt is given and {asked.place} has none; write --prompt='a red fox'", code="E1072"
        )
    out = asked.out or free_folder(Path("samples") / source.name)
    model = open_model(source, asked.weights)
    wanted = _wanted(asked, lines, recipe, model, is_model=source.is_model)
    if asked.numbered:
        wanted = _numbered(out, wanted)
    else:
        _refuse_taken(out, wanted)
    if any(one.request.size.frames > 1 for one in wanted) and (sentence := pictures.written_as(recipe.sample.clip)):
        say(sentence)
    _tell_of_lost_words(model.family, wanted, say)
    tiles = _draw_all(out, wanted, model, recipe, say)
    sheets = _write_sheets(out, wanted, tiles, title=source.name)
    where = ", ".join(str(path) for path in sheets)
    what = "clip" if wanted[0].request.size.frames > 1 else "picture"
    yield f"{counted(len(wanted), what)} in {out}; contact sheet: {where}"


def _lines_of(asked: Asked, recipe: Recipe) -> tuple[tuple[Line, ...], Recipe]:
    """The prompts, and the recipe with what a prompt file of its own says for all of them: less than what the command
    line says."""
    if asked.lines or recipe.sample.file is None:
        return asked.lines or tuple(Line(prompt) for prompt in recipe.sample.prompts), recipe
    file = read_file(recipe.sample.file)
    given = {word.partition("=")[0] for word in asked.overrides}
    settings = {name: value for name, value in file.settings.items() if f"sample.{name}" not in given}
    return file.lines, recipe.model_copy(update={"sample": recipe.sample.model_copy(update=settings)})


def _cleaned(lines: Sequence[Line], recipe: Recipe) -> tuple[tuple[Line, ...], Recipe]:
    """The prompts as captions are shown, the negative one of the recipe among them."""
    captions, sample = recipe.data.captions, recipe.sample
    negative = _prompts.cleaned(sample.negative_prompt, captions)
    cleaned = recipe.model_copy(update={"sample": sample.model_copy(update={"negative_prompt": negative})})
    return tuple(_prompts.shown(line, captions) for line in lines), cleaned


def _wanted(asked: Asked, lines: Sequence[Line], recipe: Recipe, model: Model, *, is_model: bool) -> list[Wanted]:
    """Every picture, those of one size after one another, so that they can be drawn together."""
    settings = recipe.sample
    own = model.own_size if is_model else None
    if settings.image is not None and settings.size is None:
        own = size_of(settings.image)
    usual = settings.size or ((own.width, own.height) if own else (recipe.data.resolution, recipe.data.resolution))
    given = settings.negative_prompt if asked.negative is None else asked.negative
    negative = _prompts.cleaned(given, recipe.data.captions)
    frames = _clips.drawn_frames(recipe, model.family.grid, own.frames if own else 1)
    found: list[tuple[Request, int, int]] = []
    new = {row: secrets.randbelow(2**31) for row, line in enumerate(lines) if line.seed == NEW_EACH_TIME}
    of_lines = [_kinds(line, asked, settings, new.get(row)) for row, line in enumerate(lines)]
    across = max(map(len, of_lines))
    for column, (width, height) in enumerate(asked.sizes or (usual,)):
        for row, line in enumerate(lines):
            size = _checked(Size(*line.size(width, height), frames), model.family)
            # a line's own seed is an address of its own, wherever in the file the line stands
            index = asked.index + (row if line.seed is None else 0)
            for place, (seed, scale) in enumerate(of_lines[row]):
                request = Request(
                    prompt=line.prompt,
                    size=size,
                    negative=negative if line.negative is None else line.negative,
                    seed=seed,
                    index=index,
                    steps=line.steps,
                    guidance=scale,
                    solver=line.solver,
                )
                found.append((request, row, column * across + place))
    found.sort(key=lambda entry: (entry[0].size.width, entry[0].size.height, entry[0].solver or "", entry[0].guidance))
    width = len(str(max(1, len(lines) - 1)))
    return [Wanted(request, row, column, _name(row, column, request, max(3, width))) for request, row, column in found]


def _name(row: int, column: int, request: Request, digits: int) -> str:
    return f"{row:0{digits}d}-{column}-seed{request.seed}{pictures.ending(request.size)}"


def _kinds(line: Line, asked: Asked, settings: SampleSettings, new: int | None) -> list[tuple[int, float]]:
    """Seed and guidance scale of each picture of a line. new: a seed drawn for it."""
    own = line.seed if new is None else new
    seeds = (asked.seeds or (settings.seed,)) if own is None else (own,)
    return list(product(seeds, line.guidance or settings.guidance))


def _checked(size: Size, family: ModelFamily) -> Size:
    pixels = family.grid.side
    if size.width % pixels or size.height % pixels or min(size.width, size.height) < pixels:
        raise RecipeError(
            f"a picture of {size.width}x{size.height} cannot be drawn: sides are multiples of {pixels}", code="E1007"
        )
    return size


def _draw_all(
    out: Path, wanted: Sequence[Wanted], model: Model, recipe: Recipe, say: Callable[[str], None]
) -> dict[tuple[int, int], Pixels]:
    """Draws and writes, each picture as soon as it is there. Returns small copies by place."""
    settings = recipe.sample
    tiles: dict[tuple[int, int], Pixels] = {}
    with durable.storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        pictured = drawn(model, [one.request for one in wanted], recipe, say)
        for number, (one, picture) in enumerate(zip(wanted, pictured, strict=True), 1):
            told = pictures.facts(one.request, settings) | _guidance_from(one.request, settings, model) | model.told
            durable.write_file(out / one.name, pictures.file(picture.pixels, told, settings.clip))
            tiles[one.row, one.column] = _small(pictures.strip(picture.pixels))
            if number % max(1, settings.batch_size) == 0 or number == len(wanted):
                say(f"drawn {number} of {len(wanted)}")
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"{model.device} has not enough memory ({str(error).splitlines()[0]}); write --batch=1, draw smaller "
            "pictures, or set run.precision=bf16",
            code="E1751",
        ) from error
    return tiles


def _guidance_from(request: Request, settings: SampleSettings, model: Model) -> dict[str, str]:
    """What guidance moved away from, as text by name, where that is not the negative prompt."""
    is_zeros = is_unconditional(model.family, request.negative, settings) and request.guidance != 1.0
    return {"unconditional": "zeros"} if is_zeros else {}


def _write_sheets(
    out: Path, wanted: Sequence[Wanted], tiles: dict[tuple[int, int], Pixels], *, title: str
) -> list[Path]:
    """contact.png, and contact-2.png … where one would be too large."""
    prompts = {one.row: one.request.prompt or "(no prompt)" for one in wanted}
    heads = _headings(wanted)
    written: list[Path] = []
    for top in range(0, len(prompts), _ROWS):
        for left in range(0, len(heads), _COLUMNS):
            rows = [row for row in sorted(prompts) if top <= row < top + _ROWS]
            columns = range(left, min(left + _COLUMNS, len(heads)))
            image = grids.sheet(
                [[tiles.get((row, column)) for column in columns] for row in rows],
                rows=[prompts[row] for row in rows],
                columns=[heads[column] for column in columns],
                title=title,
            )
            written.append(_free_sheet(out))
            with durable.storage_errors(out):
                grids.save(image, written[-1])
    return written


def _free_sheet(out: Path) -> Path:
    """contact.png, or the first of contact-2.png … that is not there."""
    names = (out / f"contact{f'-{number}' if number > 1 else ''}.png" for number in itertools.count(1))
    return next(path for path in names if not path.exists())


def _headings(wanted: Sequence[Wanted]) -> list[str]:
    """What all pictures of a column share of size, seed and, where there are several, guidance scale."""
    count = 1 + max(one.column for one in wanted)
    several = len({one.request.guidance for one in wanted}) > 1
    found = []
    for column in range(count):
        here = [one.request for one in wanted if one.column == column]
        sizes = {f"{r.size.width}x{r.size.height}" for r in here}
        seeds = {f"seed {r.seed}" for r in here}
        scales = {f"guidance {r.guidance:g}" for r in here} if several else set()
        found.append(", ".join(next(iter(words)) for words in (sizes, seeds, scales) if len(words) == 1))
    return found


def _numbered(out: Path, wanted: Sequence[Wanted]) -> list[Wanted]:
    """Nine digits for names, in the order of prompts and seeds, behind the highest number that is there: MindONE's
    form."""
    there = [int(path.stem) for path in out.glob("*") if re.fullmatch(r"\d{9}", path.stem)]
    first = max(there, default=-1) + 1
    order = sorted(range(len(wanted)), key=lambda n: (wanted[n].row, wanted[n].column))
    number = {place: first + count for count, place in enumerate(order)}
    return [
        replace(one, name=f"{number[place]:09d}{pictures.ending(one.request.size)}") for place, one in enumerate(wanted)
    ]


def _refuse_taken(out: Path, wanted: Sequence[Wanted]) -> None:
    taken = [name for name in (*(one.name for one in wanted), "contact.png") if (out / name).exists()]
    if taken:
        raise RecipeError(
            f"{out / taken[0]} is there already and stays as it is; give another folder with --out", code="E1071"
        )


def _tell_of_lost_words(family: ModelFamily, wanted: Sequence[Wanted], say: Callable[[str], None]) -> None:
    texts = list(dict.fromkeys(text for one in wanted for text in (one.request.prompt, one.request.negative) if text))
    for text, lost in zip(texts, family.lost_tokens(texts), strict=True):
        if lost:
            say(f"warning: the last {lost} tokens of {text[:60]!r}… do not fit and are not seen")


def _small(pixels: Pixels) -> Pixels:
    image = Image.fromarray(pixels)
    image.thumbnail((_TILE, _TILE), Image.Resampling.LANCZOS)
    return np.asarray(image)
