"""The model card of an export: facts of the run as Markdown, with the YAML header that the Hugging Face hub reads.

Everything in it is recorded in the run folder or in the recipe; what is not known is left out. It contains no captions,
prompts or names of files of the data set, and no folders of this machine.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from mezzotint import outside
from mezzotint.adapters.files import LOW_NOISE
from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.run_folder import RunFolder
from mezzotint.settings.counting import format_count
from mezzotint.settings.reading import paths
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading import hub
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress
from mezzotint.weights.files import learned_tokens

FILE = "README.md"
"""Its name in the folder of an export."""

SUFFIX = ".md"
"""Added to the name of a file that is exported without a folder."""

_DESCRIBED = ("parameters", "under", "buckets", "batches", "length", "objective", "update", "computing")
"""Lines of the run's description (`mezzotint.tasks.describe`) that contain no paths."""

_MISSING = object()
"""Stands for a setting that a section does not have."""

Contents = Literal["model", "adapter", "tokens", "single_file", "trained_parts"]


@dataclass(frozen=True, slots=True)
class Export:
    """What a card describes. pipeline: the class in the model folder's model_index.json. adapter_files, token_files:
    the files for diffusers of an adapter and of learned tokens, relative to the folder."""

    contents: Contents
    pipeline: str = ""
    adapter_files: Sequence[str] = ()
    token_files: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """The facts of a run at one of its steps. loss: the smoothed training loss. held_out: losses by step. is_average:
    whether the EMA weights are exported. adapter: its kind, rank and alpha. references: number of images that the model
    is given beside the prompt. fills: whether it is also given the region to fill. data, weights, environment,
    description: as recorded in the run folder."""

    recipe: Recipe
    step: int
    last_step: int
    epoch: int
    loss: float | None
    held_out: Mapping[int, float]
    is_average: bool
    adapter: str
    is_video: bool
    references: int
    fills: bool
    data: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    description: Sequence[Sequence[str]] = ()

    @classmethod
    def of(
        cls, folder: RunFolder, recipe: Recipe, model: TrainableModel, progress: Progress, *, loss: float | None,
        held_out: Mapping[int, float], is_average: bool,
    ) -> ModelCard:  # fmt: skip
        """The facts of a run after its last step; those of its start are read from the run folder."""
        takes_image = model.files.inpaints or model.files.animates
        starts = [event for event in folder.events() if event.get("event") == "started"]
        manifest = _read_object(folder.path / "manifest.json")
        return cls(
            recipe=recipe, step=progress.step, last_step=progress.last_step, epoch=progress.epoch + 1,
            loss=loss, held_out=held_out, is_average=is_average,
            adapter="" if model.adapter is None else describe_adapter(model.adapter),
            is_video=model.family.grid.frames > 1,
            references=1 if takes_image else len(recipe.data.condition_names), fills=model.files.inpaints,
            data=manifest.get("data", {}), weights=manifest.get("weights", {}),
            environment=_read_object(folder.path / "environment.json"),
            description=starts[-1].get("description", ()) if starts else (),
        )  # fmt: skip

    def render(self, export: Export) -> str:
        """The text of the card."""
        header = yaml.safe_dump(self._header(export), sort_keys=False, allow_unicode=True, width=10**9)
        rows = "".join(f"| {title} | {text} |\n" for title, text in self._rows())
        recipe = yaml.safe_dump(shareable_settings(self.recipe), sort_keys=False, allow_unicode=True, width=100)
        usage = "".join(f"\n{block}" for block in self._usage(export))
        return (
            f"---\n{header}---\n\n# {escape(self.recipe.run.name)}\n\n{self._summary(export)}\n{usage}\n"
            f"## Training\n\n| | |\n|---|---|\n{rows}\n"
            f"<details><summary>Settings that differ from Mezzotint's defaults</summary>\n\n{_fence(recipe, 'yaml')}"
            f"\n</details>\n"
        )

    @property
    def base(self) -> str:
        """The name of the model that the run started from: its id on the hub, or the name of its file or folder; ""
        for random weights."""
        path = self.recipe.model.path
        return "" if self.recipe.model.weights == "random" else hub.id_of(path) or path.name

    @property
    def triggers(self) -> tuple[str, ...]:
        """The trigger words that the recipe adds to captions, and learned tokens that are not among them."""
        triggers = trigger_words(self.recipe)
        return (*triggers, *(word for word in self.recipe.model.tokens.words if word not in " ".join(triggers)))

    def _header(self, export: Export) -> dict[str, Any]:
        model, chosen = self.recipe.model, self.recipe.run.export.card
        task = "video" if self.is_video else "image"
        is_adapter = export.contents in ("adapter", "tokens")
        entries: dict[str, Any] = {
            "license": None,
            "base_model": hub.id_of(model.path) if self.base else None,
            "base_model_relation": "adapter" if is_adapter else "finetune",
            "library_name": "diffusers" if self._is_for_diffusers(export) else None,
            "pipeline_tag": f"image-to-{task}" if self.references else f"text-to-{task}",
            "instance_prompt": ", ".join(self.triggers) or None,
        }
        tags = [f"image-to-{task}" if self.references else f"text-to-{task}", "mezzotint", model.family]
        tags += ["diffusers"] * self._is_for_diffusers(export)
        tags += [model.adapter.kind] * (export.contents == "adapter")
        tags += ["textual_inversion"] * self.recipe.model.tokens.has_any
        written = {name: _clean(list(values)) for name, values in chosen.items()}
        entries["tags"] = [*dict.fromkeys([*tags, *written.pop("tags", [])])]
        entries |= {name: values[0] if len(values) == 1 else values for name, values in written.items()}
        if entries["base_model"] is None:
            del entries["base_model_relation"]
        return {name: _clean(value) for name, value in entries.items() if value}

    def _summary(self, export: Export) -> str:
        parts = ", ".join(self.recipe.model.train).replace("_", " ")
        subject = {
            "model": f"A model whose {escape(parts)} was trained",
            "single_file": f"A model whose {escape(parts)} was trained",
            "trained_parts": f"The trained {escape(parts)} of a model",
            "adapter": f"An adapter ({escape(self.adapter)}) for {escape(parts)}",
            "tokens": "Learned tokens (textual inversion)",
        }[export.contents]
        start = f"starting from {escape(self.base)}" if self.base else "from random weights"
        average = " These are the averaged weights (EMA)." if self.is_average else ""
        trigger = f" Trigger words: {', '.join(map(escape, self.triggers))}." if self.triggers else ""
        version = self.environment.get("mezzotint")
        return (
            f"{subject}, {start}. Family: {self.recipe.model.family}. Trained for {format_count(self.step, 'step')} "
            f"with Mezzotint{f' {escape(version)}' if version else ''}.{average}{trigger}"
        )

    def _usage(self, export: Export) -> Iterator[str]:
        if self._is_for_diffusers(export):
            yield "## Use\n"
            yield _fence("\n".join(self._code(export)) + "\n", "python")

    def _is_for_diffusers(self, export: Export) -> bool:
        match export.contents:
            case "model":
                import diffusers  # takes seconds

                return export.pipeline in dir(diffusers)
            case "adapter" | "tokens":
                return bool(export.adapter_files or export.token_files)
            case _:
                return False

    def _code(self, export: Export) -> Iterator[str]:
        """Python that loads the export and generates one image or clip."""
        yield "from diffusers import DiffusionPipeline"
        if self.references:
            yield "from diffusers.utils import load_image"
        if self.is_video:
            yield "from diffusers.utils import export_to_video"
        yield ""
        yield 'folder = "."  # the folder of this file'
        if export.contents == "model":
            yield "pipeline = DiffusionPipeline.from_pretrained(folder)"
        else:
            note = "" if hub.id_of(self.recipe.model.path) else "  # its folder, or its id on the hub"
            yield f"base = {self.base!r}{note}"
            yield "pipeline = DiffusionPipeline.from_pretrained(base)"
        for file in export.adapter_files:
            second = ", load_into_transformer_2=True" if Path(file).stem.endswith(LOW_NOISE) else ""
            yield f"pipeline.load_lora_weights(folder, weight_name={file!r}{second})"
        for file in export.token_files:
            is_second = Path(file).name == learned_tokens.DIFFUSERS_NAMES[1]
            second = ", text_encoder=pipeline.text_encoder_2, tokenizer=pipeline.tokenizer_2" if is_second else ""
            yield f"pipeline.load_textual_inversion(folder, weight_name={file!r}{second})"
        images = [f'load_image("image-{number + 1}.png")' for number in range(self.references)]
        arguments = [repr(", ".join(self.triggers) or "a photograph")]
        several = f"[{', '.join(images)}]" if len(images) > 1 else "".join(images)
        arguments += [f"image={several}"] if images else []
        arguments += ['mask_image=load_image("mask.png")'] if self.fills else []
        call = f"pipeline({', '.join(arguments)})"
        yield (
            f'export_to_video({call}.frames[0], "clip.mp4")' if self.is_video else f'{call}.images[0].save("image.png")'
        )

    def _rows(self) -> Iterator[tuple[str, str]]:
        """The rows of the table, as Markdown."""
        yield "progress", f"{self.step:,} of {self.last_step:,} steps, epoch {self.epoch:,}"
        yield "seed", str(self.recipe.run.seed)
        if self.loss is not None:
            yield "training loss", f"{self.loss:.4f} (smoothed) at step {self.step:,}"
        if self.held_out:
            last, best = max(self.held_out), min(self.held_out, key=lambda step: self.held_out[step])
            lowest = f"; lowest {self.held_out[best]:.4f} at step {best:,}" if best != last else ""
            yield "held-out loss", f"{self.held_out[last]:.4f} at step {last:,}{lowest}"
        if "samples" in self.data and "fingerprint" in self.data:
            count = format_count(int(self.data["samples"]), "sample")
            sets = len(self.recipe.data.image_sets())
            several = f" in {sets} sets" if sets > 1 else ""
            yield "data", f"{count}{several}; hash of images and captions `{escape(self.data['fingerprint'])}`"
        for part, digest in self.weights.items() if self.base else ():
            yield f"base: {escape(part)}", f"hash `{escape(digest)}`"
        for line in self.description:
            if len(line) == 2 and line[0] in _DESCRIBED:
                yield escape(line[0]), escape(line[1])
        gpu = self.environment.get("gpu")
        device = gpu.get("name") if isinstance(gpu, dict) else self.environment.get("device")
        if device:
            yield "device", f"{escape(device)}, {format_count(int(self.environment.get('processes', 1)), 'process')}"
        packages = self.environment.get("packages")
        if isinstance(packages, dict):
            versions = [f"{name} {version}" for name, version in packages.items() if version]
            yield "versions", escape(", ".join([f"python {self.environment.get('python')}", *versions]))


def pipeline_of(folder: Path) -> str:
    """The pipeline class of a model folder; "" if its index does not name one."""
    return str(_read_object(folder / "model_index.json").get("_class_name", ""))


def trigger_words(recipe: Recipe) -> tuple[str, ...]:
    """The trigger words of a recipe: those of the adapter, or those that the sets of images add to captions."""
    if recipe.model.adapter.trigger:
        return (recipe.model.adapter.trigger,)
    of_sets = (one.settings.captions.trigger for one in recipe.data.image_sets() if not one.is_class)
    return tuple(dict.fromkeys(filter(None, of_sets)))


def describe_adapter(adapter: TrainedAdapter) -> str:
    """Its kind, rank and alpha; an OFT has no alpha."""
    pairs = set()
    for shape in adapter.shapes.values():
        if shape.method == "oft":
            return str(adapter)
        for path in shape.layers:
            rank = shape.ranks.get(path, shape.rank)
            pairs.add((rank, shape.alphas.get(path, rank if shape.alpha is None else shape.alpha)))
    alphas = sorted({alpha for _, alpha in pairs})
    if all(rank == alpha for rank, alpha in pairs):
        return f"{adapter}, alpha equal to the rank"
    return f"{adapter}, alpha {alphas[0]:g}" + (f" to {alphas[-1]:g}" if len(alphas) > 1 else "")


def shareable_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings of a recipe that differ from the defaults and can change the result, as a tree, without paths: of
    those only the names of model files remain."""
    values, defaults = (each.model_dump(by_alias=True) for each in (recipe, Recipe()))
    tree: dict[str, Any] = {}
    for setting in paths.settings():
        keys = setting.path.split(".")
        value, default = (_at(each, keys) for each in (values, defaults))
        is_result = setting.change != "free" or keys[0] == "model"
        if value in (default, _MISSING) or not is_result or "prompt" in setting.name:
            continue
        shared = _without_paths(value, keeps_names=keys[0] == "model")
        if shared not in (None, [], {}) or value in (None, (), {}):
            inner = tree
            for key in keys[:-1]:
                inner = inner.setdefault(key, {})
            inner[keys[-1]] = shared
    return tree


def escape(text: object) -> str:
    """Text as Markdown on one line, shown as it is: no formatting, HTML, links or cells of tables."""
    plain = "".join(char if char.isprintable() else " " for char in str(text))
    return re.sub(
        r"([\\`*_\[\]|~#$@]|:(?=//)|(?<=www)\.)",
        r"\\\1",
        html.escape(" ".join(plain.split()), quote=False),
        flags=re.IGNORECASE,
    )


def _fence(text: str, language: str) -> str:
    """A block of code that nothing in the text can end."""
    marks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{marks}{language}\n{text}{marks}\n"


def _clean(value: Any) -> Any:
    """Texts of the header on one line: `---` at the start of a line would end it."""
    if isinstance(value, str):
        return " ".join(value.split())
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _without_paths(value: Any, *, keeps_names: bool) -> Any:
    """A value as YAML writes it. Paths, also in texts, are left out, or reduced to their last part."""
    if isinstance(value, Mapping):
        items = {str(key): _without_paths(inner, keeps_names=keeps_names) for key, inner in value.items()}
        return {key: inner for key, inner in items.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        inside = [_without_paths(inner, keeps_names=keeps_names) for inner in value]
        return [inner for inner in inside if inner is not None]
    if isinstance(value, Path):
        return (hub.id_of(value) or value.name) if keeps_names else None
    if isinstance(value, str) and (value.startswith(("/", "~", "\\")) or re.match(r"[A-Za-z]:\\|\w+://", value)):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _at(tree: Any, keys: Sequence[str]) -> Any:
    """The value of a setting; `_MISSING` where another kind, such as another optimizer, does not have it."""
    for key in keys:
        tree = tree.get(key, _MISSING) if isinstance(tree, Mapping) else _MISSING
    return tree


def _read_object(path: Path) -> Mapping[str, Any]:
    """A JSON object of the run folder; empty if it cannot be read."""
    try:
        values = outside.read_json(path, limit=outside.LISTED)
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
