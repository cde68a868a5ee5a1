"""Prompts of previews: those of the recipe, captions of the data set, or a prompt file that is read again each time.

All processes have the same prompts; the first reads the file and shares when the next previews are due. If the file
becomes invalid during a run, the last valid one stays in use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import draws
from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.captions import Changes, without_changes
from mezzotint.diffusion.objective import Objective
from mezzotint.errors import CacheError, RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes.base import Runtime
from mezzotint.sampling import prompt_file
from mezzotint.sampling.prompt_file import NEW_EACH_TIME, Line, PromptFile
from mezzotint.sampling.requests import Request
from mezzotint.sampling.sample import check_solver
from mezzotint.settings.base import Every, with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.sample import SampleSettings, SolverName
from mezzotint.shapes import Size, TextImages
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.assemble import Caches, Dataset, encoders, frames_to_generate
from mezzotint.tasks.prompts import cleaning, condition_images, first_frames
from mezzotint.training.callbacks.base import PreviewRequests
from mezzotint.training.model import TrainableModel

_EMPTY = PromptFile(())
_CAPTIONS = 4  # previews, if the recipe has no prompts
_LOOKED_AT = 10_000  # samples, to find distinct captions


def captions(recipe: Recipe, dataset: Dataset) -> tuple[str, ...]:
    """The texts that previews need from a text cache. Raises RecipeError E1073 for an invalid prompt file."""
    if recipe.run.preview.every is None:
        return ()
    file = _read(recipe)
    lines = _lines(recipe, file, dataset)
    texts = [line.prompt for line in lines if not line.random_caption]
    texts += [line.negative for line in lines if line.negative is not None]
    negative = file.settings.get("negative_prompt", recipe.sample.negative_prompt)
    return (*texts, cleaning.clean_prompt(negative, recipe.data.captions))


def texts_with_images(recipe: Recipe, dataset: Dataset, seen: TextImages) -> list[Request]:
    """Requests with the texts that previews need from a text cache, and the condition images that the text encoder
    sees. Raises as `captions` and `condition_images.with_images`."""
    if recipe.run.preview.every is None:
        return []
    file = _read(recipe)
    negative = file.settings.get("negative_prompt", recipe.sample.negative_prompt)
    negative = cleaning.clean_prompt(negative, recipe.data.captions)
    requests = [
        Request(line.prompt, Size(0, 0), negative if line.negative is None else line.negative, line=number)
        for number, line in enumerate(_lines(recipe, file, dataset))
        if not line.random_caption
    ]
    return condition_images.with_whole_images(requests, recipe, seen)


def require_drawable(recipe: Recipe, objective: Objective, family: ModelFamily) -> None:
    """Raises RecipeError for previews that the model cannot sample: E1070 by solver, E1220 by guidance."""
    sample = recipe.sample
    check_solver(sample.solver, objective.schedule, objective.parameterization.solver_prediction, sample)
    for scale in sample.guidance:
        family.refuse_guidance(scale)
    condition_images.require_taken(family, condition_images.files_by_name(sample, animates=family.animates))


class PreviewPrompts:
    """A `PreviewSource`, created on all processes together. Raises RecipeError E1073, on all of them, for an invalid
    file at the start of the run; with an empty file the recipe's prompts are used."""

    def __init__(
        self, recipe: Recipe, runtime: Runtime, dataset: Dataset, caches: Caches, model: TrainableModel,
        warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._recipe = recipe
        self._runtime = runtime
        self._dataset = dataset
        self._caches = caches
        self._model = model
        self._warn = warn
        self._warned: set[str] = set()
        self._encoded: dict[tuple[str, bytes], TextEmbedding] = {}
        self._first_frames: dict[Size, Tensor] = {}
        self._images: condition_images.Encoded = {}
        self._file = _EMPTY
        self.every = recipe.run.preview.every
        self.at_start = True
        refusal = ""
        if runtime.is_first:
            try:
                self._file = self._read_valid()
            except RecipeError as error:
                refusal = error.message
        self._share_file_state(refusal)

    def renew(self, step: int) -> None:
        """See `PreviewSource`."""
        if self._recipe.sample.prompt_file is None:
            return
        if self._runtime.is_first:
            self._file = self._read_again()
        self._share_file_state("")

    def of_step(self, step: int) -> PreviewRequests:
        """See `PreviewSource`. Embeddings come from the cache if the text encoder is not loaded; it is loaded again for
        a prompt that is new since the run's start."""
        requests, settings = self._requests_of_step(step)
        if self._runtime.shares:  # all processes that share the weights generate together
            content = {"requests": [asdict(r) for r in requests], "settings": settings.model_dump(mode="json")}
            shared = json.loads(self._runtime.share(json.dumps(content)))
            requests = [Request(**{**r, "size": Size(**r["size"])}) for r in shared["requests"]]
            settings = SampleSettings.model_validate(shared["settings"])
        family = self._model.family
        requests = condition_images.with_images(
            requests, self._recipe, self._open_encoder, self._images, inpaints=family.inpaints, animates=family.animates
        )
        requests = condition_images.with_whole_images(requests, self._recipe, family.text_images)
        return PreviewRequests(self._with_embeddings(self._with_first_frames(requests)), settings)

    def _open_encoder(self) -> ModelFamily:
        """A family with the autoencoder, which is loaded only for this if it is not there."""
        family = self._model.family
        if "vae" in family.parts():
            return family
        return encoders(self._recipe, self._model.files, self._runtime.device)("media")

    def _with_first_frames(self, requests: list[Request]) -> list[Request]:
        """The requests with the first frame of clips. If the autoencoder is not loaded, it is loaded only for this."""
        recipe, family = self._recipe, self._model.family
        if recipe.sample.clip.first_frame is None or family.animates:
            return requests
        first_frames.refuse_first_frames(family, requests)
        if {request.size for request in requests} - self._first_frames.keys():
            conditioned = first_frames.with_first_frames(family, self._open_encoder, requests, recipe)
            self._first_frames |= {
                request.size: request.first_frame for request in conditioned if request.first_frame is not None
            }
        return [replace(request, first_frame=self._first_frames[request.size]) for request in requests]

    def _requests_of_step(self, step: int) -> tuple[list[Request], SampleSettings]:
        file = self._file
        settings = with_values(self._recipe.sample, file.settings)
        negative = cleaning.clean_prompt(settings.negative_prompt, self._recipe.data.captions)
        every: list[Request] = []
        for index, line in enumerate(_lines(self._recipe, file, self._dataset)):
            request = Request(
                prompt=self._caption(step, index) if line.random_caption else line.prompt,
                negative=negative if line.negative is None else line.negative,
                size=self._size(line, file),
                seed=settings.seed if line.seed is None else self._seed(line.seed, step, index),
                index=index if line.seed is None else 0,  # with its own seed a line needs no index
                steps=line.steps,
                solver=line.solver,
                line=index,
            )
            every += [replace(request, guidance=scale) for scale in line.guidance or settings.guidance]
        return every, settings

    def _share_file_state(self, refusal: str) -> None:
        """Shares the state of the prompt file with all processes."""
        batches = self._file.batches
        content = {"refusal": refusal, "batches": batches, "at_start": self._file.at_start}
        shared = json.loads(self._runtime.share(json.dumps(content)))
        if shared["refusal"]:
            raise RecipeError(shared["refusal"], code="E1073")
        if shared["batches"] is not None:
            # in batches, of which a step may have several
            steps = math.ceil(shared["batches"] / self._recipe.optim.accumulation)
            self.every = Every(steps, "steps")
        else:
            self.every = self._recipe.run.preview.every
        self.at_start = shared["at_start"] is not False

    def _read_valid(self) -> PromptFile:
        """Reads the file and checks that all its images can be generated. Raises RecipeError."""
        file = _read(self._recipe)
        for line in file.lines:
            self._size(line, file)
        schedule, kind = self._model.objective.schedule, self._model.objective.parameterization.solver_prediction
        solvers: list[SolverName | None] = [file.settings.get("solver"), *(line.solver for line in file.lines)]
        for name in sorted({name for name in solvers if name is not None}):
            check_solver(name, schedule, kind, self._recipe.sample)
        for note in file.notes:
            self._warn_once(note)
        return file

    def _read_again(self) -> PromptFile:
        try:
            file = self._read_valid()
            if file.lines or not self._file.lines:
                return file
            problem = f"{self._recipe.sample.prompt_file}: no longer has a prompt"
        except RecipeError as error:
            problem = error.message
        self._warn_once(f"{problem} (the prompts read before stay in use)")
        return self._file

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._warn(sentence)

    def _size(self, line: Line, file: PromptFile) -> Size:
        side = max(self._recipe.data.resolution)
        usual = file.settings.get("size") or self._recipe.sample.size or (side, side)
        width, height = line.size(*usual)
        pixels = self._model.family.grid.side
        if width % pixels or height % pixels:
            where = line.where or self._recipe.sample.prompt_file
            raise RecipeError(
                f"{where}: an image of {width}x{height} cannot be generated; its sides must be multiples of {pixels}",
                code="E1073",
            )
        return Size(width, height, frames_to_generate(self._recipe, self._model.family.grid))

    def _seed(self, seed: int, step: int, index: int) -> int:
        if seed != NEW_EACH_TIME:
            return seed
        return draws.below(draws.key(self._recipe.run.seed, "preview-seed", step, index), 1 << 31)

    def _caption(self, step: int, index: int) -> str:
        seed, rows = self._recipe.run.seed, self._dataset.rows
        row = int(rows[draws.below(draws.key(seed, "preview-row", step, index), len(rows))])
        choice = self._dataset.catalogue.captions(row)
        chosen = choice[draws.below(draws.key(seed, "preview-caption", step, index), len(choice))]
        return without_changes(chosen, Changes.of(self._recipe.data.captions))

    def _with_embeddings(self, requests: Sequence[Request]) -> list[Request]:
        if self._caches.text is None:
            return list(requests)
        self._encode_missing(requests)
        return [
            replace(r, text=self._text(r.prompt, r.images_hash), negative_text=self._text(r.negative, r.images_hash))
            for r in requests
        ]

    def _encode_missing(self, requests: Sequence[Request]) -> None:
        """Encodes texts missing in the cache; the encoder is loaded only for this."""
        absent = {}
        for request in requests:
            for text in (request.prompt, request.negative):
                try:
                    self._text(text, request.images_hash)
                except CacheError:
                    absent[text, request.images_hash] = request.whole_images
        if not absent:
            return
        family = encoders(self._recipe, self._model.files, self._runtime.device)("text")
        with torch.no_grad():
            for (text, images_hash), images in absent.items():
                self._encoded[text, images_hash] = family.encode_text_with_images([text], [images]).to("cpu")

    def _text(self, text: str, images_hash: bytes) -> TextEmbedding:
        assert self._caches.text is not None
        key = text, images_hash
        embedding = self._encoded[key] if key in self._encoded else self._caches.text.read([text], images=[images_hash])
        return embedding.to(self._runtime.device)


def _read(recipe: Recipe) -> PromptFile:
    return _EMPTY if recipe.sample.prompt_file is None else prompt_file.read(recipe.sample.prompt_file)


def _lines(recipe: Recipe, file: PromptFile, dataset: Dataset) -> tuple[Line, ...]:
    """The prompts of the file, otherwise those of the recipe, otherwise the first four distinct captions; cleaned if
    captions are."""
    if file.lines:
        return tuple(cleaning.clean_line(line, recipe.data.captions) for line in file.lines)
    if recipe.sample.prompts:
        return tuple(cleaning.clean_line(Line(prompt), recipe.data.captions) for prompt in recipe.sample.prompts)
    return tuple(_caption_lines(recipe, dataset, in_buckets="size" not in file.settings))


def rows_in_turn(dataset: Dataset) -> NDArray[np.int32]:
    """The trained rows, ascending: the first of each set, the second of each, and so on; at most `_LOOKED_AT`."""
    rows = np.sort(dataset.rows)
    of_set = dataset.catalogue.set[rows]
    order = np.argsort(of_set, kind="stable")
    first = np.searchsorted(of_set[order], of_set[order])
    return rows[order][np.argsort(np.arange(len(rows)) - first, kind="stable")][:_LOOKED_AT]


def _caption_lines(recipe: Recipe, dataset: Dataset, *, in_buckets: bool) -> Iterator[Line]:
    """The first distinct captions of the data set, of each set in turn, each in the size that its image is trained in,
    unless the recipe sets a size; for clips in the size common to all. in_buckets: whether the prompt file sets no size
    either."""
    sizes = in_buckets and recipe.sample.size is None and not recipe.data.has_clips
    table = buckets.table(recipe.data) if sizes else ()
    seen: set[str] = set()
    for row in rows_in_turn(dataset).tolist():
        settings = dataset.catalogue.settings_of(row, recipe.data)
        caption = without_changes(dataset.catalogue.captions(row)[0], Changes.of(settings.captions))
        if caption in seen:
            continue
        seen.add(caption)
        size = table[int(dataset.catalogue.buckets_of([row], recipe.data).bucket[-1])] if sizes else None
        yield Line(caption, width=size.width if size else None, height=size.height if size else None)
        if len(seen) == _CAPTIONS:
            return
