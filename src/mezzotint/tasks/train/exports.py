"""What a run exports and under which name: the model as a folder, also as a single file, or only the trained parts."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from torch import Tensor

from mezzotint import durable
from mezzotint.adapters import files, header, under, writing
from mezzotint.adapters.files import Layout
from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.errors import RecipeError, WeightsError
from mezzotint.run_folder import RunFolder
from mezzotint.settings import weights_formats
from mezzotint.settings.base import with_values
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.saving import ExportSettings
from mezzotint.settings.sections.tokens import PART
from mezzotint.settings.weights_formats import SAFETENSORS
from mezzotint.tasks.train import model_card
from mezzotint.tasks.train.model_card import Contents, Export, ModelCard
from mezzotint.tasks.weights.convert import single_file_of
from mezzotint.training.loop import Trainer
from mezzotint.training.model import TrainableModel
from mezzotint.training.precision.policy import DTYPES
from mezzotint.weights.files import learned_tokens
from mezzotint.weights.single_file import known_layouts, modelspec


def require_possible(recipe: Recipe) -> None:
    """Raises RecipeError E1092 for export formats that the family does not have."""
    settings, family = recipe.run.export, recipe.model.family
    if not family_spec(family).layout:
        for name, is_set in (
            ("parts", settings.parts == "trained"),
            ("trained_file", settings.trained_file is not None),
        ):
            if is_set:
                raise RecipeError(
                    f"run.export.{name}: models of family {family} are written as whole folders only; leave it out",
                    code="E1092",
                )
    for name, chosen in (("trained_file", settings.trained_file), ("file_format", settings.file_format)):
        if chosen is None or chosen == SAFETENSORS:
            continue
        families = known_layouts.families(weights_formats.suffix_of(chosen))
        if family not in families:
            raise RecipeError(
                f"run.export.{name}: models of family {family} are not written in the format {chosen}, those of "
                f"{', '.join(families) or 'no family'} are; write {SAFETENSORS}",
                code="E1092",
            )


def name_of(recipe: Recipe, trainer: Trainer, ema: str = "", *, alone: bool = False) -> str:
    """The name of an export at the trainer's step. ema: "_ema" for averaged weights, "" for the trained ones. alone:
    name the file with only the trained parts, which is written next to whole models."""
    template, progress = recipe.run.export.name or "step-{step:08}", trainer.progress
    parts = "-".join("unet" if part == "denoiser" else part for part in recipe.model.train)
    if alone and "{what" not in template:
        template = f"{{what}}-{template}"
    name = template.format(
        name=recipe.run.name, step=progress.step, ema=ema,
        what=recipe.run.name if recipe.run.export.parts == "all" and not alone else parts,
        epoch=progress.epoch + 1 if progress.epoch_ends or progress.is_done else progress.epoch,
        micro_step=-(-progress.samples // recipe.data.batch_size),
        last="last-" if progress.is_done else "interrupted-" if trainer.stopped else "",
    )  # fmt: skip
    return name if not ema or "{ema" in template else f"{name}-ema"


def write(  # noqa: PLR0913  each names something different about one export
    model: TrainableModel, recipe: Recipe, settings: ExportSettings, parent: Path, weights: Mapping[str, Tensor], *,
    name: str, name_alone: str, facts: Mapping[str, object], say: Callable[[str], None],
    free: Callable[[Path], Path] = lambda path: path, card: ModelCard | None = None,
) -> list[Path]:  # fmt: skip
    """Writes weights, trained ones by `part/parameter`, into the folder `parent`: the model as a folder called `name`,
    or the file of the trained parts; before it the file of `run.export.trained_file`, called `name_alone`, if that is
    another file. An adapter becomes a folder called `name` with its files. facts: about the run, for the headers. say:
    prints what readers of the files misread. free: chooses the path of a file in a folder shared with others. card: the
    model card, which is written into each folder, and beside a file without one. Returns the paths written, without
    cards. Raises what exporting raises, StorageError E1701."""

    def parts(stem: str, file_format: str) -> Path:
        target = _file(settings, parent, f"{stem}{weights_formats.suffix_of(file_format)}", free)
        with durable.storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            on_cpu = {n: t.detach().cpu() for n, t in weights.items()}
            dtype = settings.single_file_dtype or settings.dtype
            model.family.export_parts(target, recipe.model.train, model.files, weights=on_cpu, dtype=dtype)
            if settings.parts == "trained" or settings.single_file_folder is not None:
                _write_card_of_file(card, "trained_parts", target, settings, free)
        return target

    if model.adapter is not None:
        return [_adapter(model, model.adapter, recipe, settings, parent / name, weights, facts, say, card)]
    if set(recipe.model.train) == {PART}:
        with write_new_or_replace(parent / name) as folder:
            tokens = _write_learned_tokens(model, recipe, settings, folder, weights)
            _write_card(card, folder, Export("tokens", token_files=tokens))
        return [parent / name]
    if settings.parts == "trained":
        written = [parts(name, settings.file_format)]
    else:
        written = [_folder(model, recipe, settings, parent / name, weights, free, card)]
    if settings.trained_file is None or (settings.parts == "trained" and settings.file_format == settings.trained_file):
        return written
    return [parts(name_alone, settings.trained_file), *written]


def _file(settings: ExportSettings, parent: Path, name: str, free: Callable[[Path], Path]) -> Path:
    return parent / name if settings.single_file_folder is None else free(settings.single_file_folder / name)


def choose_free_path(folder: RunFolder, path: Path, *, replaces: bool, say: Callable[[str], None]) -> Path:
    """Where a run writes a file outside of its folder: `path` if it does not exist, or the run itself wrote it, or with
    `replaces`; otherwise the first such NAME-2, NAME-3 …, with a note. The history records the path before the file is
    written: a kill changes nothing."""
    durable.sweep(path.parent)  # under any name: the killed export may have had another one
    written = {event.get("path") for event in folder.events() if event.get("event") == "writes"}
    candidates = itertools.chain([path], (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2)))
    target = next(
        candidate for candidate in candidates if replaces or str(candidate) in written or not os.path.lexists(candidate)
    )
    if target != path:
        say(f"note: {path} exists and was not written by this run; it stays, and the model is written to {target.name}")
    if str(target) not in written:
        folder.record("writes", path=str(target))
    return target


def _write_card(card: ModelCard | None, folder: Path, export: Export) -> None:
    if card is not None:
        durable.write_file(folder / model_card.FILE, card.render(export))


def _write_card_of_file(
    card: ModelCard | None, contents: Contents, file: Path, settings: ExportSettings, free: Callable[[Path], Path]
) -> None:
    if card is not None:
        durable.write_file(
            _file(settings, file.parent, f"{file.name}{model_card.SUFFIX}", free), card.render(Export(contents))
        )


def _folder(
    model: TrainableModel, recipe: Recipe, settings: ExportSettings, target: Path, weights: Mapping[str, Tensor],
    free: Callable[[Path], Path], card: ModelCard | None,
) -> Path:  # fmt: skip
    with write_new_or_replace(target) as folder:
        model.family.export(
            folder,
            model.files,
            weights=weights,
            dtype=settings.dtype,
            schedule=model.objective.schedule,
            trained_form=model.objective.parameterization,
        )
        tokens = _write_learned_tokens(model, recipe, settings, folder, weights)
        _write_card(card, folder, Export("model", pipeline=model_card.pipeline_of(folder), token_files=tokens))
    if settings.single_file:
        suffix = weights_formats.suffix_of(settings.file_format)
        file = _file(settings, target.parent, f"{target.name}{suffix}", free)
        single_file_of(target, file, settings.single_file_dtype)
        if settings.single_file_folder is not None:
            with durable.storage_errors(file):
                _write_card_of_file(card, "single_file", file, settings, free)
    return target


@contextmanager
def write_new_or_replace(target: Path) -> Iterator[Path]:
    """Where to write a folder: an earlier one is replaced once the new one is complete."""
    if target.exists():
        with durable.replacing(target) as temporary:
            yield temporary
    else:
        with durable.storage_errors(target):
            yield target


def _adapter(
    model: TrainableModel, trained: TrainedAdapter, recipe: Recipe, settings: ExportSettings, target: Path,
    weights: Mapping[str, Tensor], facts: Mapping[str, object], say: Callable[[str], None], card: ModelCard | None,
) -> Path:  # fmt: skip
    """Writes an adapter's files into a folder, each complete or not at all."""
    on_cpu = {n: tensor.detach().cpu() for n, tensor in weights.items() if not n.startswith(f"{PART}/")}
    adapter = trained.as_file(on_cpu)
    base = {part: model.files.fingerprint(part) for part in trained.folders}
    description = model.files.description(recipe.run.name)
    chosen = recipe.model.adapter
    chosen = with_values(chosen, {"trigger": ", ".join(model_card.trigger_words(recipe))})
    entries = header.entries(adapter, chosen, base, description, {"output_name": recipe.run.name, **facts})
    if recipe.model.under:
        entries[files.UNDER_KEY] = json.dumps(under.describe(recipe.model.under))
    seal = modelspec.seal if description is not None else None
    generating: Layout = "kohya" if "unet" in trained.names.shapes or not trained.names.originals else "comfy"
    choices: dict[str, list[Layout]] = {"auto": ["diffusers", generating], "both": ["diffusers", "kohya"]}
    layouts: list[Layout] = choices.get(settings.adapter) or [cast(Layout, settings.adapter)]
    if settings.adapter in choices and all(shape.method == "oft" for shape in trained.shapes.values()):
        layouts = ["diffusers"]  # the only one with peft's names
    if not trained.names.originals and settings.adapter == "auto":
        layouts = ["diffusers"]  # no other program supports the model
    with write_new_or_replace(target) as folder:
        folder.mkdir(parents=True, exist_ok=True)
        for_diffusers: list[str] = []

        def write_layout(layout: Layout) -> None:
            stem = Path(files.DIFFUSERS_NAME).stem if layout == "diffusers" else recipe.run.name
            written = writing.write(
                adapter, folder / f"{stem}{_noise_suffix(trained)}.safetensors", trained.names, layout,
                metadata=entries, dtype=DTYPES[settings.dtype], seal=seal,
            )  # fmt: skip
            if layout == "diffusers":
                for_diffusers.extend(file.name for file in written.files)
            for note in written.notes if len(layouts) == 1 or layout != "diffusers" else ():
                say(f"{written.files[0].name}: {note}")

        for layout in layouts:
            try:
                write_layout(layout)
            except WeightsError as error:
                if error.code != "E1435" or layout == generating:
                    raise
                if generating not in layouts:
                    say(f"{error.message.removeprefix(f'{folder}{os.sep}')}; that layout was written instead")
                    write_layout(generating)
        tokens = _write_learned_tokens(model, recipe, settings, folder, weights)
        _write_card(card, folder, Export("adapter", adapter_files=for_diffusers, token_files=tokens))
    return target


def _noise_suffix(trained: TrainedAdapter) -> str:
    """The suffix of the file name when one of two denoisers is trained."""
    changed = [component for component in trained.names.denoisers if component in trained.folders.values()]
    if len(trained.names.denoisers) < 2 or len(changed) != 1:
        return ""
    return files.HIGH_NOISE if changed[0] == trained.names.denoisers[0] else files.LOW_NOISE


def _write_learned_tokens(
    model: TrainableModel, recipe: Recipe, settings: ExportSettings, folder: Path, weights: Mapping[str, Tensor]
) -> list[str]:
    """Writes the embeddings of learned tokens into a folder that is being written. Returns the files for diffusers,
    relative to the folder."""
    embeddings = model.family.learned_embeddings(weights) if PART in recipe.model.train else {}
    if embeddings:
        base = {part: model.files.fingerprint(part) for part in model.family.text_parts}
        facts = {"format": "pt", header.BASE: json.dumps(base, sort_keys=True)}
        folder.mkdir(parents=True, exist_ok=True)
        written = learned_tokens.write(folder, embeddings, DTYPES[settings.dtype], facts)
        return [str(p.relative_to(folder)) for p in written if p.name in learned_tokens.DIFFUSERS_NAMES]
    return []


def is_made(folder: RunFolder, step: int) -> bool:
    """Whether the export of a step was written since the run last reached that step from an earlier one."""
    for event in reversed(folder.events()):
        match event.get("event"), event.get("step"):
            case "exported", int(event_step) if event_step == step:
                return True
            case "started" | "resumed", int(event_step) if event_step < step:
                return False
    return False


def facts(recipe: Recipe, trainer: Trainer) -> dict[str, object]:
    """What an export's header records about its run, by kohya's names."""
    data, optim, progress = recipe.data, recipe.optim, trainer.progress
    return {
        "steps": progress.step,
        "max_train_steps": progress.last_step,
        "epoch": progress.epoch + 1,
        "seed": trainer.seed,
        "learning_rate": optim.lr,
        "optimizer": optim.optimizer.kind,
        "lr_scheduler": optim.schedule.kind,
        "total_batch_size": data.largest_batch * optim.accumulation,
        "resolution": max(side for one in data.image_sets() for side in one.settings.resolution),
        "mixed_precision": "no" if recipe.run.precision == "fp32" else recipe.run.precision,
        "clip_skip": recipe.model.clip_skip + 1 if recipe.model.clip_skip else None,
        "sd_model_name": recipe.model.path.name,
    }
