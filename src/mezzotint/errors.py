"""What can go wrong in the reader's world: kinds of errors, their exit status, their stable codes, and the words
`explain CODE` prints.

An error says where, what and what to do, in one sentence. These errors are printed without a traceback; any other
exception is our own bug, shown with one and exit status 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file or a request.

    where: the recipe path or file it concerns; what: the sentence; remedy: what to write instead ("" when `what` says
    it); code: `E…`, a key of `CODES`; line: 1-based line in the file, or None when it came from the command line or a
    default.
    """

    where: str
    what: str
    remedy: str = ""
    code: str = "E1000"
    line: int | None = None


class MezzotintError(Exception):
    """An error of the reader's world. `code` is stable and is what `mezzotint explain CODE` expands."""

    exit_status: ClassVar[int] = 2
    default_code: ClassVar[str] = "E1000"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code

    def __str__(self) -> str:
        return f"error[{self.code}]: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        # the code travels back from worker processes, too
        return (_rebuild, (type(self), self.message, self.code))


def _rebuild(kind: type[MezzotintError], message: str, code: str) -> MezzotintError:
    return kind(message, code=code)


class RecipeError(MezzotintError):
    """The request is wrong. `problems` holds every one found in a single pass, in the order of the file."""

    default_code = "E1000"

    def __init__(self, message: str, *, code: str | None = None, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message, code=code or (problems[0].code if problems else None))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        if not self.problems:
            return super().__str__()
        many = f"{len(self.problems)} problem{'s' if len(self.problems) > 1 else ''}"
        lines = [f"{self.message} has {many}"]
        place = max((len(_line(p)) for p in self.problems), default=0)
        width = max(len(p.where) for p in self.problems)
        for p in self.problems:
            remedy = f"; {p.remedy}" if p.remedy else ""
            lines.append(f"  {_line(p):<{place}}  {p.where:<{width}}  {p.code} {p.what}{remedy}")
        return "\n".join(lines)


def _line(problem: Problem) -> str:
    return f"line {problem.line}" if problem.line is not None else "given"


class DatasetError(MezzotintError):
    """Pictures, clips or captions that cannot be used."""

    default_code = "E1200"


class CacheError(MezzotintError):
    """A cache that cannot be read, written or trusted."""

    default_code = "E1300"


class WeightsError(MezzotintError):
    """Base weights or an exported model that cannot be read."""

    default_code = "E1400"


class CheckpointError(MezzotintError):
    """A checkpoint or run folder that cannot be continued."""

    default_code = "E1500"


class Diverged(MezzotintError):
    """Training went wrong numerically: non-finite values, or a part that does not learn."""

    exit_status = 3
    default_code = "E1600"


class StorageError(MezzotintError):
    """The disk is full or refuses to be written."""

    exit_status = 4
    default_code = "E1700"


class OutOfMemory(MezzotintError):
    """The device has not enough memory for the request."""

    exit_status = 5
    default_code = "E1750"


class PeerLost(MezzotintError):
    """Another process of the same run, or a loader worker, is gone."""

    exit_status = 6
    default_code = "E1800"


class Stopped(MezzotintError):
    """A signal asked the run to stop; it stopped after a clean save. Exit status 128 + the signal's number."""

    default_code = "E1900"

    def __init__(self, message: str, *, signal_number: int = 15, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.signal_number = signal_number

    def __str__(self) -> str:
        return self.message


CODES: dict[str, str] = {
    "E1000": "The request could not be understood. The message says which part; `mezzotint --help` lists the verbs, "
    "`mezzotint explain PATH` every setting.",
    "E1200": "The data set cannot be used as it is. The message names the file and what to do with it.",
    "E1250": "A picture that could be read when the data set was indexed cannot be read any more: it was "
    "removed, replaced or cut short, or its disk has gone. The message names the file. Restore it, or "
    "start the same command again: the picture is left out then, and the data report says so.",
    "E1251": "A picture's content is not what the index says although its size and times are the same, so that "
    "it has another address in the cache. `touch` the file, or delete the data index, and start again: "
    "it is then read anew.",
    "E1300": "The cache cannot be read or written. It holds nothing that cannot be made again: deleting it is always safe.",
    "E1301": "The cache folder cannot be written. Make it writable, or set data.cache.path to another folder. A "
    "cache that already holds everything can be read from a folder that cannot be written.",
    "E1303": "A cache entry that the run needs is missing or damaged (its checksum does not fit). It counts as "
    "absent from now on, in all processes. Start the same command again, which makes it anew before "
    "training goes on, or run `mezzotint cache RECIPE` first.",
    "E1304": "The encoder gave values that are not finite (NaN or infinity), or that are too large for the type "
    "they are stored in. Such rows are not cached. Try data.cache.dtype=fp32 and run.frozen_dtype=fp32 "
    "(the VAE of some models overflows in fp16), or leave the named pictures out.",
    "E1305": "A folder of the cache says that its entries have another shape than the model makes, although both "
    "name the same encoder. Its layout.json was changed or comes from elsewhere. Delete that folder; it "
    "is made again.",
    "E1400": "The model's files cannot be used. The message names the file and what was found in it.",
    "E1401": "A model file or folder is not where the recipe says. `model.path` is a folder in diffusers' layout, or"
    " the name of a model that ships with Mezzotint; relative paths are looked up beside the recipe, then "
    "in the current folder.",
    "E1402": "A weights file cannot be read as safetensors. The message says what its first bytes suggest: an empty "
    "or truncated download, a Git LFS pointer, a web page that was saved instead of the model, a pickle "
    "file under another name. Fetch it again, or convert it.",
    "E1403": "Weights hold values that are not finite (NaN or infinity). A model with such a value can only give "
    "NaN. Take another copy, or an earlier save of the run that made it.",
    "E1404": "The index of a model in several files is damaged, names a file that is not there, or names something "
    "that does not lie beside it. Fetch the model's folder again, with all its shards.",
    "E1405": "The weights do not fit the model's configuration: tensors are missing, left over, or of another shape."
    " Configuration and weights come from different models, or the file holds something else, such as a "
    "LoRA.",
    "E1406": "The files belong to another kind of model than the recipe's `model.family`. `sd` reads Stable "
    "Diffusion 1.x and 2.x text-to-image folders; the message says what the files look like.",
    "E1407": "The folder has configurations and no weights. Give the path of a complete model, or write "
    "`model.weights: random` if you mean to train from nothing.",
    "E1408": "The weights are there as pickle files only (.bin, .ckpt, .pt). Opening one can run code, so Mezzotint "
    "reads safetensors. Most models are published in both forms; otherwise convert them.",
    "E1409": "A configuration in the model folder is missing, not JSON, or says something that no model of this "
    "family can have.",
    "E1410": "The place of an export is taken. An export never writes over files: remove the folder or choose "
    "another name.",
    "E1500": "The run folder or a checkpoint in it cannot be continued. Nothing was changed.",
    "E1600": "Training diverged: values that are not finite, or a part that was to be trained and does not move. "
    "The newest checkpoint was written before it happened.",
    "E1700": "The disk is full or cannot be written. Earlier checkpoints are untouched.",
    "E1701": "A file could not be written: the disk is full, the quota is used up, or the folder is read-only. Files"
    " are written aside and renamed when complete, so what was there before is untouched.",
    "E1750": "The device ran out of memory. Lower run.micro_batch (the mathematics stays the same), switch on "
    "run.recompute, or take a smaller data.resolution.",
    "E1800": "Another process of this run is gone, so that the step could not be finished. Start the same command again: "
    "it goes on from the newest checkpoint.",
    "E1801": "A process that loads data has ended before its time: it was killed (often because the machine ran "
    "out of memory or of shared memory, /dev/shm) or it crashed while decoding. Start the same command "
    "again; it goes on from the newest checkpoint. With data.workers=0 nothing runs beside the "
    "training.",
    "E1900": "A signal stopped the run after it had saved. The line that was printed goes on from there.",
}
"""Every stable code with the paragraph that `mezzotint explain CODE` prints. A test holds this table against the
source."""


def explain_code(code: str) -> str | None:
    """The paragraph for a code, or None when there is no such code."""
    return CODES.get(code.upper())
