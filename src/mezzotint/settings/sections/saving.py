"""What is written of a run, and what it goes back to where its numbers go wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import Formatter
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from mezzotint.errors import did_you_mean
from mezzotint.settings import weights_formats
from mezzotint.settings.base import (
    FREE,
    RECORDED,
    Intervals,
    PublishedPath,
    Section,
)


def _is_name(value: str | None) -> str | None:
    """Refuses what is no template of `run.export.name`, or would leave the folder."""
    if value is None:
        return None
    known = {"name": "run", "what": "run", "epoch": 1, "step": 1, "micro_step": 1, "last": "last-", "ema": "_ema"}
    try:
        for _, field, width, _ in Formatter().parse(value):
            if field is not None and (field not in known or not re.fullmatch(r"\d{0,2}d?", width or "")):
                raise ValueError(field)
        name = value.format(**known)
    except (KeyError, IndexError, ValueError) as error:
        *most, last = (f"{{{one}}}" for one in known)
        raise ValueError(
            f"takes {', '.join(most)} and {last} alone, numbers with a width of at most 99, got {value!r}"
        ) from error
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name):
        raise ValueError(f"makes the name {name!r}; letters, digits, dot, hyphen and underscore are allowed")
    return value


def _is_weights_format(value: str) -> str:
    known = weights_formats.names()
    if value not in known:
        listed = f"known: {', '.join(known)}"
        raise ValueError(f"there is no weights format {value!r}; {did_you_mean(value, known, listed)}")
    return value


ExportName = Annotated[str, AfterValidator(_is_name)]
FileFormat = Annotated[str, AfterValidator(_is_weights_format)]
LinkName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$")]


class SaveSettings(Section):
    """Checkpoints: everything a run needs to go on, to the bit."""

    every: Annotated[Intervals, FREE] = Field(default="500 steps", validate_default=True)
    """How often a checkpoint is written: `500 steps`, `1 epoch`, `20 minutes`, or a list of several of them; null saves
    at the end and on signals only."""

    keep: Annotated[PositiveInt | None, FREE] = 2
    """How many checkpoints stay; null keeps all. An old one goes only after a newer one is written and verified."""

    best: Annotated[bool, FREE] = False
    """Keep the checkpoint with the lowest held-out loss, too, beside the newest ones: the loss of the average where
    there is one, otherwise of the trained weights. A checkpoint is written at each measurement that is lower than all
    before, and the best one has the second name `checkpoints/best`. It goes only after a better one is written and
    verified."""

    asynchronous: Annotated[bool, FREE] = True
    """Write checkpoints while training goes on, from a copy in the host's memory, to the same bytes; at most one at a
    time. Where memory has no room for the copy, and with `run.export.optimizer_file`, training waits, as it does
    with false. The last one of a run, one on a signal that stops it and one before an export are waited for."""

    sharded: Annotated[bool, FREE] = True
    """With several processes that all hold the whole model (`run.runtime=ddp`), let each write and hash its part of a
    checkpoint, into files of its own; any number of processes reads it. Where not all of them see the run folder, and
    with false, the first writes everything."""


class ExportSettings(Section):
    """The finished model as others read it: a folder that diffusers opens."""

    every: Annotated[Intervals, FREE] = ()
    """How often the model is exported during the run: one interval or a list of several; it always is at the end."""

    from_epoch: Annotated[NonNegativeInt, FREE] = 0
    """Exports counted in epochs begin after so many of them; others and the last one do not wait."""

    name: Annotated[ExportName | None, FREE] = None
    """How an exported model is called, with {name} (`run.name`), {what} (the same; with `parts: trained` what is in
    it, such as `unet`), {epoch}, {step}, {micro_step} (the samples seen over `data.batch_size`, rounded up), {last}
    (`last-` at the run's end, `interrupted-` where a signal has stopped it, nothing before) and {ema} (`_ema` for the
    average, nothing for the trained weights), such as `{last}{name}-ep{epoch:02}-gs{step:05}`. None calls it
    `step-{step:08}`. Without {ema} the average's has `-ema` behind it."""

    dtype: Annotated[Literal["fp32", "fp16", "bf16"], FREE] = "fp32"
    """The type of the exported weights."""

    parts: Annotated[Literal["all", "trained"], FREE] = "all"
    """`all` writes whole models. `trained` writes no folder but one file with the parts of `model.train` alone, under
    the names that they have in a whole file; `mezzotint merge` lays it over the model it was trained from, and
    `model.over` while that is loaded. MindONE calls it `unet_{micro_step}`."""

    adapter: Annotated[Literal["auto", "diffusers", "kohya", "comfy", "both"], FREE] = "auto"
    """Of a run that trains an adapter (`model.adapter`), which files of it are written, into a folder of their own:
    `diffusers` is `pytorch_lora_weights.safetensors`, for its `load_lora_weights`; `kohya` and `comfy` are
    `NAME.safetensors` after `run.name`, for the programs in which people generate. `auto` writes diffusers' and, of SD
    and SDXL, kohya's (ComfyUI, A1111, Forge), of flow-matching models ComfyUI's; `both` writes diffusers' and kohya's.
    LoHa and LoKr have only the second."""

    trained_file: Annotated[FileFormat | None, FREE] = None
    """Write the parts of `model.train` alone, too, as `parts: trained` does, beside whole models, in this format:
    `safetensors`, or another one as in `file_format`. {what} of its name is what is in it, such as `unet`, and stands
    before the name where `run.export.name` has it not. None writes no such file."""

    single_file: Annotated[bool, FREE] = False
    """Write each exported model a second time as one file beside its folder, .safetensors, under the names that other
    programs know, with a ModelSpec header."""

    file_format: Annotated[FileFormat, FREE] = "safetensors"
    """The format of files, with `single_file` or `parts: trained`: `safetensors`, or one that another trainer's folder
    or an installed package registers. Of family sdxl, `mindspore` writes MindSpore's checkpoints (.ckpt) with MindONE's
    names."""

    single_file_dtype: Annotated[Literal["fp32", "fp16", "bf16"] | None, FREE] = None
    """The type of the weights in single files; None takes `run.export.dtype`."""

    single_file_folder: Annotated[PublishedPath | None, FREE] = None
    """Where single files lie, those of `parts: trained` too; None puts each beside its folder, or into exports/."""

    optimizer_file: Annotated[str | None, FREE] = None
    """Write the optimizer's state into the run folder beside each checkpoint in another program's form, too, for that
    program and for `run.start.optimizer`. `mindone` writes `optimizer.ckpt` with Adam's moments of SDXL. None writes
    none."""

    link: Annotated[LinkName | None, FREE] = None
    """Another name for `exports/` in the run folder, such as `ckpts`: a link beside it, for those who look there."""

    when_stopped: Annotated[bool, FREE] = False
    """Export the model, too, when a signal stops the run, once the checkpoint is written. It takes as long as an export
    does, for which a cluster may not wait."""

    folder: Annotated[PublishedPath | None, FREE] = None
    """Another folder in which the finished model lies, file by file, when the run has ended: the average when there is
    one, otherwise the trained weights. It may be the run folder. Only what an earlier end has put there is replaced."""

    def contradictions(self) -> Iterator[str]:
        if self.parts == "trained" and self.folder is not None:
            yield (
                "run.export.folder wants whole models, run.export.parts=trained writes none; leave it out, or set "
                "run.export.parts=all"
            )
        if self.file_format != weights_formats.SAFETENSORS and not self.single_file and self.parts == "all":
            yield (
                "run.export.file_format is about files, and none are written; set run.export.single_file=true or "
                "run.export.parts=trained, or leave it out"
            )


class RollBackSettings(Section):
    """How `run.on_divergence: roll-back` goes on: with the weights of the last checkpoint that was written before the
    first of the bad steps."""

    times: Annotated[PositiveInt, FREE] = 3
    """How often at most; once more ends the run with status 3."""

    skip: Annotated[bool, RECORDED] = True
    """Leave out the batches from that checkpoint to the step that ended it, as PaLM was trained (Chowdhery et al. 2022,
    arXiv:2204.02311): they count as steps and move nothing. false trains them again, which goes the same way unless
    `factor` is below 1."""

    factor: Annotated[float, Field(gt=0.0, le=1.0), RECORDED] = 1.0
    """What every learning rate is multiplied by from then on, each time anew."""

    def contradictions(self) -> Iterator[str]:
        if not self.skip and self.factor == 1.0:
            yield (
                "run.roll_back.skip=false trains the same batches again, which end the same way; write a "
                "run.roll_back.factor below 1, such as 0.5, or leave skip out"
            )
