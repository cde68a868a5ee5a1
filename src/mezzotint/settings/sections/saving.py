"""Checkpoints, exports, and rolling back when training diverges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import Formatter
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveInt

from mezzotint.errors import did_you_mean
from mezzotint.settings import weights_formats
from mezzotint.settings.base import (
    FREE,
    RECORDED,
    Intervals,
    PublishedPath,
    Section,
    as_list,
)


def _check_name_template(value: str | None) -> str | None:
    """Raises ValueError for an invalid template of `run.export.name`, or one that could leave the folder."""
    if value is None:
        return None
    examples = {"name": "run", "what": "run", "epoch": 1, "step": 1, "micro_step": 1, "last": "last-", "ema": "_ema"}
    try:
        for _, field, width, _ in Formatter().parse(value):
            if field is not None and (field not in examples or not re.fullmatch(r"\d{0,2}d?", width or "")):
                raise ValueError(field)
        name = value.format(**examples)
    except (KeyError, IndexError, ValueError) as error:
        *most, last = (f"{{{field}}}" for field in examples)
        raise ValueError(
            f"accepts only {', '.join(most)} and {last}, numbers with a width of at most 99, got {value!r}"
        ) from error
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name):
        raise ValueError(f"gives the name {name!r}; letters, digits, dot, hyphen and underscore are allowed")
    return value


def _check_weights_format(value: str) -> str:
    names = weights_formats.names()
    if value not in names:
        listed = f"known: {', '.join(names)}"
        raise ValueError(f"there is no weights format {value!r}; {did_you_mean(value, names, listed)}")
    return value


ExportName = Annotated[str, AfterValidator(_check_name_template)]
FileFormat = Annotated[str, AfterValidator(_check_weights_format)]
CardEntry = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,49}$")]
Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
LinkName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$")]


class SaveSettings(Section):
    """Checkpoints: everything a run needs to resume bitwise identically."""

    every: Annotated[Intervals, FREE] = Field(default="500 steps", validate_default=True)
    """How often a checkpoint is written: `500 steps`, `1 epoch`, `20 minutes`, or a list of several; null saves only at
    the end and on signals."""

    keep: Annotated[PositiveInt | None, FREE] = 2
    """How many checkpoints are kept; null keeps all. An old one is deleted only after a newer one is written and
    verified."""

    best: Annotated[bool, FREE] = False
    """Also keep the checkpoint with the lowest held-out loss, of the average if there is one, otherwise of the trained
    weights. A checkpoint is written at each measurement that is lower than all before, and the best one has the second
    name `checkpoints/best`. It is deleted only after a better one is written and verified."""

    asynchronous: Annotated[bool, FREE] = True
    """Write checkpoints in the background from a copy in host memory, with identical bytes; at most one at a time.
    Training waits if memory has no room for the copy, with `run.export.optimizer_file`, and with false. The last
    checkpoint of a run, one on a signal that stops it and one before an export are always waited for."""

    sharded: Annotated[bool, FREE] = True
    """With several processes that each hold the whole model (`run.runtime=ddp`): each writes and hashes a part of a
    checkpoint into separate files, which any number of processes can read. With false, or if not all processes see the
    run folder, the first one writes everything."""


class ExportSettings(Section):
    """The trained model for other programs: a folder that diffusers opens."""

    every: Annotated[Intervals, FREE] = ()
    """How often the model is exported during the run: an interval or a list of several. The end of a run always
    exports."""

    from_epoch: Annotated[NonNegativeInt, FREE] = 0
    """Exports counted in epochs start after this many; others and the last one do not wait."""

    name: Annotated[ExportName | None, FREE] = None
    """The name of an exported model, with {name} (`run.name`), {what} (the same; with `parts: trained` the exported
    part, such as `unet`), {epoch}, {step}, {micro_step} (samples seen over `data.batch_size`, rounded up), {last}
    (`last-` at the end of the run, `interrupted-` after a signal, otherwise empty) and {ema} (`_ema` for the average,
    empty for trained weights), such as `{last}{name}-ep{epoch:02}-gs{step:05}`. None is `step-{step:08}`. Without {ema}
    the average gets the suffix `-ema`."""

    dtype: Annotated[Literal["fp32", "fp16", "bf16"], FREE] = "fp32"
    """The type of the exported weights."""

    parts: Annotated[Literal["all", "trained"], FREE] = "all"
    """`all` writes whole models. `trained` writes only the parts of `model.train` to one file, with their names in a
    single file of the whole model; `mezzotint merge` applies it to the base model, and `model.over` while that is
    loaded. MindONE calls it `unet_{micro_step}`."""

    adapter: Annotated[Literal["auto", "diffusers", "kohya", "comfy", "both"], FREE] = "auto"
    """The files written for an adapter (`model.adapter`), in a separate folder. `diffusers` is
    `pytorch_lora_weights.safetensors`, for `load_lora_weights`; `kohya` and `comfy` are `NAME.safetensors`, named by
    `run.name`, for other programs that generate images. `auto` writes diffusers' and, for SD and SDXL, kohya's
    (ComfyUI, A1111, Forge), for flow-matching models ComfyUI's; `both` writes diffusers' and kohya's. LoHa and LoKr
    have only the second."""

    trained_file: Annotated[FileFormat | None, FREE] = None
    """Also write the parts of `model.train` to a separate file, as `parts: trained` does, in this format:
    `safetensors`, or another one as in `file_format`. {what} of its name is the part, such as `unet`, and precedes the
    name if `run.export.name` does not contain it. None writes no such file."""

    single_file: Annotated[bool, FREE] = False
    """Also write each exported model as one .safetensors file next to its folder, with the tensor names that other
    programs expect and a ModelSpec header."""

    file_format: Annotated[FileFormat, FREE] = "safetensors"
    """The format of files with `single_file` or `parts: trained`: `safetensors`, or one registered by a compatibility
    folder or an installed package. For the family sdxl, `mindspore` writes MindSpore checkpoints (.ckpt) with MindONE's
    names."""

    single_file_dtype: Annotated[Literal["fp32", "fp16", "bf16"] | None, FREE] = None
    """The type of the weights in single files; None uses `run.export.dtype`."""

    single_file_folder: Annotated[PublishedPath | None, FREE] = None
    """The folder of single files, those of `parts: trained` included; None puts each next to its folder, or into
    exports/."""

    optimizer_file: Annotated[str | None, FREE] = None
    """Also write the optimizer state of each checkpoint in another program's format into the run folder, for that
    program and for `run.start.optimizer`. `mindone` writes `optimizer.ckpt` with Adam's moments of SDXL. None writes
    none."""

    link: Annotated[LinkName | None, FREE] = None
    """Another name for `exports/` in the run folder, such as `ckpts`: a symbolic link for programs that look there."""

    card: Annotated[dict[CardEntry, Names], FREE] = Field(default_factory=dict)
    """Further entries in the header of the model card that is written beside each export (`README.md`), as given, such
    as `{license: apache-2.0}`, `{license: other, license_name: mine, license_link: LICENSE.md}` or `{base_model:
    OWNER/NAME}`. They replace entries of the same name, except tags, which are added."""

    when_stopped: Annotated[bool, FREE] = False
    """Also export the model when a signal stops the run, after the checkpoint. It takes as long as an export, and a
    cluster may not wait for it."""

    folder: Annotated[PublishedPath | None, FREE] = None
    """Another folder that gets the files of the finished model at the end of the run: of the average if there is one,
    otherwise of the trained weights. It may be the run folder. Only files that an earlier run end put there are
    replaced."""

    def contradictions(self) -> Iterator[str]:
        if self.parts == "trained" and self.folder is not None:
            yield (
                "run.export.folder needs whole models, and run.export.parts=trained writes none; leave it out, or set "
                "run.export.parts=all"
            )
        if self.file_format != weights_formats.SAFETENSORS and not self.single_file and self.parts == "all":
            yield (
                "run.export.file_format has no effect without single files; set run.export.single_file=true or "
                "run.export.parts=trained, or leave it out"
            )


class RollBackSettings(Section):
    """How `run.on_divergence: roll-back` continues: with the weights of the last checkpoint before the first bad
    step."""

    times: Annotated[PositiveInt, FREE] = 3
    """How often a run may roll back; one more time ends it with status 3."""

    skip: Annotated[bool, RECORDED] = True
    """Skip the batches from that checkpoint to the step that diverged, as in PaLM (Chowdhery et al. 2022,
    arXiv:2204.02311): they count as steps and change nothing. false trains them again, with the same result unless
    `factor` is below 1."""

    factor: Annotated[float, Field(gt=0.0, le=1.0), RECORDED] = 1.0
    """Every learning rate is multiplied by this after each roll-back."""

    def contradictions(self) -> Iterator[str]:
        if not self.skip and self.factor == 1.0:
            yield (
                "run.roll_back.skip=false trains the same batches again, with the same result; write a "
                "run.roll_back.factor below 1, such as 0.5, or leave skip out"
            )
