"""Image generation of the command `sample`: requests from a command line, images into a folder, a contact sheet."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mezzotint import durable
from mezzotint.data.media import decoding
from mezzotint.families.base import ModelFamily
from mezzotint.sampling import grids, image_files
from mezzotint.sampling.network import is_unconditional
from mezzotint.sampling.prompt_file import Line
from mezzotint.sampling.requests import Request
from mezzotint.settings.base import with_values
from mezzotint.settings.counting import format_count
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.tasks import assemble
from mezzotint.tasks.prompts import cleaning
from mezzotint.tasks.sample._model import ModelSource, SampledModel, find_model_source, open_model
from mezzotint.tasks.sample._stages import generate_images, size_of
from mezzotint.tasks.sample.args import SampleArgs, Weights
from mezzotint.tasks.sample.plan import (
    CONTACT,
    ELSEWHERE,
    PlannedImage,
    SampleSource,
    lines_of,
    plan,
    refuse_sides,
    refuse_taken,
)
from mezzotint.weights.files import learned_tokens

_TILE = 384  # pixels of an image's longer side on a contact sheet
_ROWS, _COLUMNS = 24, 8  # of a contact sheet; more images need more sheets

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ImageJob:
    """One image to generate. line: its prompt and the options of its line. row, column: its position on the contact
    sheet. name: of its file."""

    request: Request
    line: Line
    row: int
    column: int
    name: str


Opener = Callable[[ModelSource, Weights | None, Sequence[tuple[Path, float]]], SampledModel]
"""Opens a model for sampling."""


@dataclass(frozen=True, slots=True)
class Session:
    """An open model and the images to generate. name: of the model or run. recipe: its section `sample` applies."""

    name: str
    recipe: Recipe
    model: SampledModel
    jobs: list[ImageJob]


def open_session(
    args: SampleArgs, source: SampleSource, say: Callable[[str], None], opener: Opener = open_model
) -> Session:  # fmt: skip
    """Plans the images and opens the model. say: prints progress. Raises as `plan` and `open_model`."""
    model_source = find_model_source(source)
    for sentence in (*args.notes, *model_source.sentences):
        say(sentence)
    lines, recipe = _clean_prompts(*lines_of(args, model_source.recipe))
    for sentence in cleaning.sign_notes(text for line in lines for text in (line.prompt, line.negative or "")):
        say(f"note: {sentence}")
    planned = plan(args, lines, recipe.sample, say)
    model = opener(model_source, args.weights, args.adapters)
    for sentence in (*model.notes, *_find_missing_embeddings(args, lines, recipe)):
        say(f"note: {sentence}")
    jobs = _make_jobs(planned, args, recipe, model, is_model=model_source.is_model)
    _warn_of_lost_tokens(model.family, jobs, say)
    return Session(model_source.name, recipe, model, jobs)


def generate(session: Session, say: Callable[[str], None]) -> Iterator[tuple[ImageJob, Pixels, dict[str, str]]]:
    """Each image or clip, uint8 (H, W, 3) or (F, H, W, 3), with how it was generated, as text by name. Raises
    OutOfMemory E1751 and as `generate_images`."""
    model, settings = session.model, session.recipe.sample
    start = _start_image_facts(session.recipe)
    remedy = "write --batch=1, generate smaller images, or set run.precision=bf16"
    with assemble.translate_shortage(f"{model.device} does not have enough memory", remedy):
        images = generate_images(model, [job.request for job in session.jobs], session.recipe, say)
        for job, image in zip(session.jobs, images, strict=True):
            facts = image_files.generation_facts(job.request, settings)
            if job.request.guidance != 1.0 and is_unconditional(model.family, job.request.negative, settings):
                facts["unconditional"] = "zeros"  # what guidance moved away from, instead of the negative prompt
            conditions = {
                f"condition.{name}": _name_image(files, job.row) for name, files in settings.conditions.items()
            }
            yield job, image.pixels, facts | start | conditions | model.facts


def write_images(
    args: SampleArgs, source: SampleSource, say: Callable[[str], None], opener: Opener = open_model
) -> Iterator[str]:
    """Generates all images into a folder and yields lines that report where they are. say: prints progress. After
    Ctrl-C there is a contact sheet of the images generated so far."""
    session = open_session(args, source, say, opener)
    recipe, jobs, title = session.recipe, session.jobs, session.name
    out = args.out or durable.free_folder(Path("samples") / title)
    if args.numbered:
        jobs = _with_numbers(out, jobs)
        session = replace(session, jobs=jobs)
    else:
        refuse_taken(out, [*(job.name for job in jobs), *_sheet_names(jobs)], replaces=args.replaces)
    if any(job.request.size.frames > 1 for job in jobs) and (
        sentence := image_files.check_clip_encoder(recipe.sample.clip)
    ):
        say(sentence)
    tiles: dict[tuple[int, int], Pixels] = {}
    try:
        _generate_all(out, session, tiles, say, replaces=args.replaces)
    except KeyboardInterrupt:
        finished = [job for job in jobs if (job.row, job.column) in tiles]
        if finished:
            summary = _write_sheets_and_report(
                out, finished, tiles, recipe.sample, title, of=len(jobs), replaces=args.replaces
            )
            say(f"interrupted: {summary}")
        raise
    yield _write_sheets_and_report(out, jobs, tiles, recipe.sample, title, replaces=args.replaces)


def _find_missing_embeddings(args: SampleArgs, lines: Sequence[Line], recipe: Recipe) -> Iterator[str]:
    """Hints about learned tokens in prompts whose file is next to an adapter and not given with `--embedding`."""
    texts = [text for line in lines for text in (line.prompt, line.negative or "")]
    tokens = {*recipe.model.tokens.words, *recipe.model.tokens.files}
    for path, _ in args.adapters:
        for token, file in learned_tokens.tokens_next_to(path).items():
            if token not in tokens and any(token in text for text in texts):
                embedding = shlex.quote(f"{token}={file}")
                yield f"{token} in a prompt is a learned token of {path}; add --embedding={embedding}"


def _write_sheets_and_report(
    out: Path, images: Sequence[ImageJob], tiles: dict[tuple[int, int], Pixels], settings: SampleSettings, title: str,
    *, of: int | None = None, replaces: bool,
) -> str:  # fmt: skip
    """Writes the contact sheets and returns where everything is. of: how many images were requested, if not all were
    generated."""
    sheets = ", ".join(str(path) for path in _write_sheets(out, images, tiles, settings, title, replaces=replaces))
    noun = "clip" if images[0].request.size.frames > 1 else "image"
    number = format_count(len(images), noun) if of is None else f"{len(images)} of {format_count(of, noun)}"
    return f"{number} in {out}; contact sheet: {sheets}"


def _clean_prompts(lines: Sequence[Line], recipe: Recipe) -> tuple[tuple[Line, ...], Recipe]:
    captions, sample = recipe.data.captions, recipe.sample
    negative = cleaning.clean_prompt(sample.negative_prompt, captions)
    clean_prompt = with_values(recipe, {"sample.negative_prompt": negative})
    return tuple(cleaning.clean_line(line, captions) for line in lines), clean_prompt


def _make_jobs(
    planned: Sequence[PlannedImage], args: SampleArgs, recipe: Recipe, model: SampledModel, *, is_model: bool
) -> list[ImageJob]:  # fmt: skip
    """All images to generate, sorted by size so that equal sizes share batches. Raises RecipeError E1007 for a size
    that the model cannot generate."""
    settings = recipe.sample
    default = model.family.native_size if is_model else None
    if settings.image is not None and settings.size is None:
        default = size_of(settings.image)
    usual = settings.size or (
        (default.width, default.height) if default else (max(recipe.data.resolution), max(recipe.data.resolution))
    )
    negative = settings.negative_prompt if args.negative is None else args.negative
    negative = cleaning.clean_prompt(negative, recipe.data.captions)
    frames = assemble.frames_to_generate(recipe, model.family.grid, default.frames if default else 1)
    jobs: list[ImageJob] = []
    for image in planned:
        width, height = image.size(usual)
        refuse_sides(width, height, model.family.grid.side, image.line.where)
        request = Request(
            prompt=image.line.prompt,
            size=Size(width, height, frames),
            negative=negative if image.line.negative is None else image.line.negative,
            seed=image.seed,
            index=image.index,
            steps=image.line.steps,
            guidance=image.guidance,
            solver=image.line.solver,
            line=image.row,
        )
        jobs.append(
            ImageJob(request, image.line, image.row, image.column, image.stem + image_files.file_suffix(request.size))
        )

    # equal size, solver and scale next to each other, to share batches
    def batch_key(job: ImageJob) -> tuple[int, int, str, float]:
        request = job.request
        return request.size.width, request.size.height, request.solver or "", request.guidance or 0.0

    return sorted(jobs, key=batch_key)


def _generate_all(
    out: Path, session: Session, tiles: dict[tuple[int, int], Pixels], say: Callable[[str], None], *, replaces: bool
) -> None:  # fmt: skip
    """Generates images and writes each as soon as it is finished. tiles: receives thumbnails by row and column."""
    settings, total = session.recipe.sample, len(session.jobs)
    with durable.storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    for number, (job, pixels, facts) in enumerate(generate(session, say), 1):
        content = image_files.file(pixels, facts, settings.clip)
        durable.write_new(out / job.name, content, code="E1071", remedy=ELSEWHERE, replaces=replaces)
        tiles[job.row, job.column] = _make_thumbnail(image_files.film_strip(pixels))
        if number % max(1, settings.batch_size) == 0 or number == total:
            say(f"generated {number} of {total}")


def _name_image(files: Sequence[Path], row: int) -> str:
    """A condition image as text: its path and hash."""
    path = files[min(row, len(files) - 1)]
    digest = decoding.digest_of(path)
    return f"{path.absolute()}{f' sha256 {digest.hex()}' if digest is not None else ''}"


def _start_image_facts(recipe: Recipe) -> dict[str, str]:
    """The image that sampling starts from, as text by name: its path, its hash, and how it is resized."""
    settings, data = recipe.sample, recipe.data
    path = settings.image or settings.clip.first_frame
    if path is None:
        return {}
    digest, kind = decoding.digest_of(path), "image" if settings.image else "first_frame"
    return {
        kind: str(path.absolute()),
        **({f"{kind}_sha256": digest.hex()} if digest is not None else {}),
        **({"strength": f"{settings.strength!r}"} if settings.image else {}),
        "data.resize": f"{data.resize}",
        "data.background": f"{data.background}",
    }


def _write_sheets(
    out: Path, jobs: Sequence[ImageJob], tiles: dict[tuple[int, int], Pixels], settings: SampleSettings, title: str,
    *, replaces: bool,
) -> list[Path]:  # fmt: skip
    """Writes contact.png, and contact-2.png … if one would be too large. Under each image is what its column heading
    does not contain."""
    prompts = {job.row: job.request.prompt or "(no prompt)" for job in jobs}
    heads = _headings(jobs)
    notes = {(job.row, job.column): _note(job, heads[job.column], jobs, settings) for job in jobs}
    written: list[Path] = []
    for top in range(0, len(prompts), _ROWS):
        for left in range(0, len(heads), _COLUMNS):
            rows = sorted(prompts)[top : top + _ROWS]
            columns = list(heads)[left : left + _COLUMNS]
            image = grids.sheet(
                [[tiles.get((row, column)) for column in columns] for row in rows],
                rows=[prompts[row] for row in rows],
                columns=[", ".join(heads[column].values()) for column in columns],
                notes=[[notes.get((row, column), "") for column in columns] for row in rows],
                title=title,
            )
            free = (path for path in _sheet_paths(out) if path not in written and (replaces or not path.exists()))
            written.append(next(free))
            durable.write_new(written[-1], grids.png(image), code="E1071", remedy=ELSEWHERE, replaces=replaces)
    return written


def _sheet_paths(out: Path) -> Iterator[Path]:
    yield out / CONTACT
    yield from (out / f"contact-{number}.png" for number in itertools.count(2))


def _sheet_names(jobs: Sequence[ImageJob]) -> list[str]:
    down = -(-len({job.row for job in jobs}) // _ROWS)
    across = -(-len({job.column for job in jobs}) // _COLUMNS)
    return [path.name for path in itertools.islice(_sheet_paths(Path()), down * across)]


def _with_numbers(out: Path, jobs: Sequence[ImageJob]) -> list[ImageJob]:
    """The images with names of nine digits, in the order of prompts and seeds, after the highest existing number:
    MindONE's format."""
    existing = [int(path.stem) for path in out.glob("*") if re.fullmatch(r"\d{9}", path.stem)]
    first = max(existing, default=-1) + 1
    order = sorted(range(len(jobs)), key=lambda n: (jobs[n].row, jobs[n].column))
    number_of = {index: first + count for count, index in enumerate(order)}
    return [
        replace(job, name=f"{number_of[index]:09d}{image_files.file_suffix(job.request.size)}")
        for index, job in enumerate(jobs)
    ]


_SET_BY_LINE: dict[str, Callable[[Line], bool]] = {
    "size": lambda line: (line.width, line.height, line.aspect) != (None, None, None),
    "seed": lambda line: line.seed is not None,
    "guidance": lambda line: bool(line.guidance),
}


def _headings(jobs: Sequence[ImageJob]) -> dict[int, dict[str, str]]:
    """For each column with images: the size, seed and, if there are several, guidance scale that its images share;
    lines that set one themselves count only if all do."""
    headings: dict[int, dict[str, str]] = {}
    for column in sorted({job.column for job in jobs}):
        in_column = [job for job in jobs if job.column == column]
        headings[column] = {}
        for name in _marks(in_column[0], jobs):
            left_open = [job for job in in_column if not _SET_BY_LINE[name](job.line)] or in_column
            values = {_marks(job, jobs)[name] for job in left_open}
            if len(values) == 1:
                headings[column][name] = values.pop()
    return headings


def _marks(job: ImageJob, jobs: Sequence[ImageJob]) -> dict[str, str]:
    request = job.request
    several = len({other.request.guidance for other in jobs}) > 1
    size = {"size": f"{request.size.width}x{request.size.height}", "seed": f"seed {request.seed}"}
    return size | ({"guidance": f"guidance {request.guidance:g}"} if several else {})


def _note(job: ImageJob, heading: dict[str, str], jobs: Sequence[ImageJob], settings: SampleSettings) -> str:
    line = job.line
    texts = [text for name, text in _marks(job, jobs).items() if heading.get(name) != text]
    if line.steps is not None and line.steps != settings.steps:
        texts.append(format_count(line.steps, "step"))
    if line.solver is not None and line.solver != settings.solver:
        texts.append(line.solver)
    if line.negative is not None:
        texts.append(f"not: {line.negative}" if line.negative else "no negative prompt")
    return ", ".join(texts)


def _warn_of_lost_tokens(family: ModelFamily, jobs: Sequence[ImageJob], say: Callable[[str], None]) -> None:
    texts = list(dict.fromkeys(text for job in jobs for text in (job.request.prompt, job.request.negative) if text))
    for text, lost in zip(texts, family.lost_tokens(texts), strict=True):
        if lost:
            say(f"warning: the last {lost} tokens of {text[:60]!r}… do not fit and are ignored")


def _make_thumbnail(pixels: Pixels) -> Pixels:
    image = Image.fromarray(pixels)
    image.thumbnail((_TILE, _TILE), Image.Resampling.LANCZOS)
    return np.asarray(image)
