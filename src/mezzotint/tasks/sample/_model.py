"""The model of `sample`: a model's files, a run's newest checkpoint, or a recipe, opened for sampling."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mezzotint import outside
from mezzotint.adapters import files as adapter_files
from mezzotint.adapters import merging
from mezzotint.adapters.names import LayerNames
from mezzotint.adapters.trained import START, TrainedAdapter
from mezzotint.adapters.under import fingerprints, put_under
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.diffusion.objective import Objective
from mezzotint.errors import CheckpointError, WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared.learned_tokens import add_to
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, open_runtime
from mezzotint.sampling.solvers import OnStep
from mezzotint.settings.base import with_values
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.reading.read import resolve_paths, with_model_defaults
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.tokens import PART
from mezzotint.tasks import description_notes, holding
from mezzotint.tasks.assemble import family_class, open_files
from mezzotint.tasks.reading.continuing import folder_of, linked_folders
from mezzotint.tasks.sample.args import Weights
from mezzotint.tasks.sample.plan import SampleSource
from mezzotint.tasks.train import resume
from mezzotint.training.checkpoints import state
from mezzotint.training.precision.policy import Precision
from mezzotint.training.update import evaluation_weights_of
from mezzotint.weights.files import fingerprint, learned_tokens
from mezzotint.weights.files.fingerprint import of_values
from mezzotint.weights.model_files import ModelFiles
from mezzotint.weights.single_file.single_file import family_at


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The model to sample from, by its files. recipe: located. name: for folders and headings. checkpoint: replaces the
    model's weights; None uses them unchanged. sentences: for the user."""

    recipe: Recipe
    name: str
    checkpoint: Path | None = None
    is_model: bool = False
    sentences: tuple[str, ...] = ()


@dataclass(slots=True)
class SampledModel:
    """A family ready to generate. facts: about the model, written into images, as text by name. on_step: called after
    each step. notes: about the files of its adapters."""

    family: ModelFamily
    objective: Objective
    precision: Precision
    device: torch.device
    facts: dict[str, str]
    on_step: OnStep | None = None
    notes: tuple[str, ...] = ()


def find_model_source(source: SampleSource) -> ModelSource:
    """Finds the model to sample from. A recipe means its run if that has a checkpoint, otherwise the model that it
    would start from. Raises CheckpointError for a run without an intact checkpoint, and E1160 for one whose folders are
    links to outside of it."""
    recipe = resolve_paths(source.reading)
    linked = linked_folders(source.reading, recipe)
    match source.kind:
        case "model":
            return _of_model(recipe, source)
        case "checkpoint":
            RunFolder(source.path.parent.parent, linked).refuse_links()
            return ModelSource(recipe, f"{source.path.parent.parent.name}-{source.path.name}", source.path)
        case "run":
            return _of_run(recipe, RunFolder(source.path, linked), str(source.path / "recipe.yaml"))
        case "recipe":
            reading = source.reading
            folder = RunFolder(folder_of(reading, recipe), linked)
            folder.refuse_links()
            if state.list_checkpoints(folder.checkpoints):
                return _of_run(recipe, folder, reading.name)
            name = reading.path.stem if reading.path else reading.name
            note = "nothing is trained yet: these are images of the model that it starts from"
            return ModelSource(recipe, name, sentences=(note,))
        case _:
            raise AssertionError(source.kind)


def _of_model(recipe: Recipe, source: SampleSource) -> ModelSource:
    family = None if "model.family" in source.reading.origin else family_at(source.path)
    settings = with_values(recipe.model, {"path": source.path} | ({"family": family} if family else {}))
    if family:
        usual = family_spec(family).default_values(source.reading.origin)
        recipe = with_values(recipe, usual)
    of_family = (f"{source.reading.name} is of family {family}",) if family else ()
    sentences = (*of_family, *description_notes.read_knowledge(source.path))
    recipe = with_model_defaults(with_values(recipe, {"model": settings}), source.reading)
    return ModelSource(recipe, source.path.stem, is_model=True, sentences=sentences)


def find_refiner(recipe: Recipe) -> ModelSource:
    """The model of `sample.refiner`."""
    path = recipe.sample.refiner.path
    assert path is not None
    settings = ModelSettings(path=path, family=family_at(path) or recipe.model.family, attention=recipe.model.attention)
    return ModelSource(with_values(recipe, {"model": settings}), path.stem, is_model=True)


def _of_run(recipe: Recipe, folder: RunFolder, name: str) -> ModelSource:
    folder.refuse_links()
    start = resume.choose("latest", folder, f"mezzotint train {name}")
    assert start.checkpoint is not None
    return ModelSource(
        recipe, f"{folder.path.name}-{start.checkpoint.name}", start.checkpoint, sentences=start.sentences
    )


def open_model(
    source: ModelSource, weights: Weights | None, adapters: Sequence[tuple[Path, float]] = ()
) -> SampledModel:
    """Loads the model, replaces its weights with a checkpoint's, and merges adapters with their strengths.

    weights: None takes averaged weights if there are any. Raises what loading raises; CheckpointError E1502 if other
    parts were trained, E1075 if there are no averaged weights.
    """
    recipe = source.recipe
    files = open_files(recipe)
    names = LayerNames.of(files) if adapters else None
    to_merge = [(adapter_files.read(path, names), scale) for path, scale in adapters] if names else []
    with_one = with_values(recipe.run, {"runtime": "single"})
    device = open_runtime(with_one, Launch()).device
    family = family_class(recipe).load(files)
    add_to(family, recipe.model)
    parts = family.parts()
    identity: dict[str, str] = {part: files.fingerprint(part) for part in parts if part != PART}
    for token, path in recipe.model.tokens.files.items():
        identity[f"word {token}"] = learned_tokens.fingerprint_of(path)
    facts: dict[str, str] = {}
    if source.checkpoint is not None:
        facts = _overlay(family, source.checkpoint, weights, recipe, files)
        identity |= {"checkpoint": facts.pop("sha256")}
    elif weights == "ema":
        raise _no_ema(f"{source.name} is not a run")
    for part in files.parts if to_merge else ():
        merging.merge_into(parts[part], files.spec.folders[part], to_merge)
    for path, scale in adapters:
        facts[f"adapter {path.name}"] = f"{scale:g}"
        for file in adapter_files.files_at(path):
            identity[f"adapter {fingerprint.of_file(file)}"] = repr(scale)
    notes = [
        f"{path}: {note}" for (path, _), (adapter, _) in zip(adapters, to_merge, strict=False) for note in adapter.notes
    ]
    if recipe.sample.under:
        notes += put_under(recipe.model.under, files, parts).notes
        of_under = fingerprints(recipe.model.under)
        _require_same(of_under, source.checkpoint)
        identity |= of_under | {f"strengths of {list(of_under)}": repr([one.strength for one in recipe.model.under])}
    precision = Precision.of(recipe.run)
    as_trained = () if recipe.model.has_adapter else recipe.model.train
    holding.freeze(family, recipe, precision, device, as_trained=as_trained)
    objective = objective_of(recipe.objective, family.schedule, recipe.model.prediction or family.prediction)
    facts |= {"model": of_values(identity), "model_name": source.name, "family": recipe.model.family}
    return SampledModel(family, objective.to(device), precision, device, facts, notes=tuple(notes))


def _require_same(of_under: Mapping[str, str], checkpoint: Path | None) -> None:
    """Raises WeightsError E1448 if an adapter under a run is not the one that its checkpoint was trained with."""
    recorded = state.read(checkpoint, tensors=False).values["identity"]["parts"] if checkpoint is not None else {}
    changed = [name for name, digest in of_under.items() if recorded.get(name, digest) != digest]
    if changed:
        raise WeightsError(
            f"sample.under: the file of {changed[0]} is not the one that {checkpoint} was trained with; put it back, "
            "or leave sample.under out",
            code="E1448",
        )


def _overlay(
    family: ModelFamily, checkpoint: Path, weights: Weights | None, recipe: Recipe, files: ModelFiles
) -> dict[str, str]:
    """Copies a checkpoint's weights into the networks. Returns facts about them for images, and their file's
    SHA-256."""
    restored = state.read(checkpoint)
    has_ema = any(name.startswith("ema/") for name in restored.tensors)
    if weights == "ema" and not has_ema:
        raise _no_ema(f"{checkpoint} was trained without optim.ema")
    which: Weights = weights or ("ema" if has_ema else "raw")
    if which == "ema":
        chosen = {n.removeprefix("ema/"): t for n, t in restored.tensors.items() if n.startswith("ema/")}
    else:
        chosen = evaluation_weights_of(restored.tensors, recipe.optim)
    if recipe.model.has_adapter:
        trained = TrainedAdapter.of(recipe.model, files)
        adapter_tensors = {name: t for name, t in restored.tensors.items() if name.startswith(START)}
        token_weights = {name: tensor for name, tensor in chosen.items() if name.startswith(f"{PART}/")}
        adapter = trained.as_file(
            {name: tensor for name, tensor in chosen.items() if name not in token_weights}, adapter_tensors
        )
        if token_weights:
            _copy(family, token_weights, checkpoint)
        for part, component in trained.folders.items():
            merging.merge_into(family.parts()[part], component, [(adapter, 1.0)])
    else:
        _copy(family, chosen, checkpoint)
    return {
        "weights": "shadow" if which == "ema" else which,
        "training_step": str(restored.step),
        "sha256": _digest(checkpoint, "shadow" if which == "ema" else "weights"),
    }


def _digest(checkpoint: Path, kind: str) -> str:
    """The SHA-256 of a checkpoint's file of a kind; for several files, of several processes, the SHA-256 of their
    hashes."""
    files = outside.read_json(checkpoint / "manifest.json", limit=outside.LISTED)["files"]
    digests = [files[name]["sha256"] for name in sorted(files) if name.startswith((f"{kind}-", f"{kind}."))]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode("ascii")).hexdigest()


def _copy(family: ModelFamily, chosen: Mapping[str, Tensor], checkpoint: Path) -> None:
    into = {f"{part}/{name}": p for part, module in family.parts().items() for name, p in module.named_parameters()}
    strange = [name for name, t in chosen.items() if name not in into or into[name].shape != t.shape]
    if strange or not chosen:
        raise CheckpointError(
            f"{checkpoint}: {len(strange)} of its {len(chosen)} trained tensors are not the model's "
            f"({', '.join(strange[:3])}); its recipe does not name the model that it was trained from",
            code="E1502",
        )
    with torch.no_grad():
        for name, tensor in chosen.items():
            into[name].copy_(tensor)


def _no_ema(reason: str) -> CheckpointError:
    return CheckpointError(f"--weights=ema: {reason}; leave it out, or write --weights=raw", code="E1075")
