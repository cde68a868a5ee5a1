"""Data set files (TOML): `[general]`, `[[datasets]]` and `[[datasets.subsets]]`. A subset's value has priority over
that of its data set; then come the general one, the command line and the default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mezzotint.compat.kit import foreign, setting_files
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.reading import Form, Spec, Value
from mezzotint.compat.kit.setting_files import SettingsFile
from mezzotint.compat.kit.toml_writing import write_toml
from mezzotint.compat.kohya._data_rows import FILTERS
from mezzotint.compat.kohya._scripts import Script
from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading.yaml_rules import KeyPath

_MAX_SETS = 1000


def _resolution(raw: Any) -> Value:
    """A side or [width, height], as text. Raises ValueError."""
    values = raw if isinstance(raw, list) else [raw]
    if not 1 <= len(values) <= 2 or not all(type(value) is int for value in values):
        raise ValueError(f"must be a side, or [width, height], got {raw!r}")
    return ",".join(map(str, values))


def _attributes(raw: Any) -> Value:
    """The attribute that changes training, if it is on. Raises ValueError."""
    if not isinstance(raw, dict):
        raise ValueError(f"must be a table, got {raw!r:.40}")
    return "diff_output_preservation" if raw.get("diff_output_preservation") else None


def _anything(raw: Any) -> Value:
    return repr(raw)


def _specs(form: Form, names: str, **more: Any) -> dict[str, Spec]:
    return {name: Spec(name, form, **more) for name in names.split()}


_OF_IMAGES = {
    **_specs("switch", "color_aug flip_aug random_crop shuffle_caption enable_wildcard"),
    **_specs("whole", "num_repeats keep_tokens token_warmup_min"),
    **_specs("number", "token_warmup_step"),
    **_specs("text", "keep_tokens_separator secondary_separator caption_separator caption_prefix caption_suffix"),
    **_specs("text", "resize_interpolation", choices=tuple(FILTERS)),
    **_specs("text", "face_crop_aug_range", from_json=_anything),
    **_specs("text", "custom_attributes", from_json=_attributes),
}
_OF_DROPOUT = {
    **_specs("whole", "caption_dropout_every_n_epochs"),
    **_specs("number", "caption_dropout_rate caption_tag_dropout_rate"),
}
_OF_FOLDERS = {**_specs("text", "caption_extension class_tokens"), **_specs("switch", "cache_info")}
_OF_SIZES = {
    **_specs("whole", "batch_size bucket_reso_steps min_bucket_reso max_bucket_reso validation_seed"),
    **_specs("switch", "enable_bucket bucket_no_upscale"),
    **_specs("number", "validation_split network_multiplier"),
    **_specs("text", "resolution", from_json=_resolution),
}
_OF_SUBSET = {
    **_specs("text", "image_dir metadata_file conditioning_data_dir"),
    **_specs("switch", "is_reg alpha_mask"),
}
GENERAL: Mapping[str, Spec] = {**_OF_IMAGES, **_OF_DROPOUT, **_OF_FOLDERS, **_OF_SIZES}
"""The keys of `[general]` and of `[[datasets]]`."""
SUBSET: Mapping[str, Spec] = {**_OF_IMAGES, **_OF_DROPOUT, **_OF_FOLDERS, **_OF_SUBSET}
"""The keys of `[[datasets.subsets]]`."""

DEFAULTS: Mapping[str, Value] = {
    "num_repeats": 1, "batch_size": 1, "caption_extension": ".caption", "caption_separator": ",", "token_warmup_min": 1,
    "min_bucket_reso": 256, "max_bucket_reso": 1024, "bucket_reso_steps": 64, "network_multiplier": 1.0,
    "keep_tokens": 0, "token_warmup_step": 0.0, "caption_dropout_rate": 0.0, "caption_tag_dropout_rate": 0.0,
    "caption_dropout_every_n_epochs": 0, "validation_split": 0.0,
}  # fmt: skip
"""Values of keys that nothing sets; None or false for others."""
_FLAGS = {"batch_size": "train_batch_size", "num_repeats": "dataset_repeats"}
"""The options of keys with other names."""


@dataclass(frozen=True, slots=True)
class Subset:
    """A folder of images with its settings. number: of its data set. values: by key, with all fall-backs. sources: the
    key path of each value that the file has. key_path: of the subset, () on a command line."""

    number: int
    values: Mapping[str, Value]
    sources: Mapping[str, KeyPath] = field(default_factory=dict)
    key_path: KeyPath = ()

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int:
        value = self.values.get(key)
        return value if isinstance(value, int) else 0

    def number_of(self, key: str) -> float:
        value = self.values.get(key)
        return float(value) if isinstance(value, (int, float)) else 0.0

    def is_on(self, key: str) -> bool:
        return self.values.get(key) is True


@dataclass(slots=True)
class DatasetFile:
    """The content of a file. file: None if it cannot be read."""

    subsets: list[Subset] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    file: SettingsFile | None = None


def fall_back(draft: Draft, *inner: Mapping[str, Value]) -> dict[str, Value]:
    """The value of each key: of the first of `inner` that has it, otherwise of the command line, otherwise the
    default."""
    values: dict[str, Value] = {}
    for key in {**GENERAL, **SUBSET}:
        candidates = [one.get(key) for one in inner]
        flag = _FLAGS.get(key, key)
        if key not in _OF_SUBSET or key == "alpha_mask":
            candidates.append(draft.values.get(flag))
        candidates.append(DEFAULTS.get(key))
        values[key] = next((value for value in candidates if value is not None), None)
    return values


def read_dataset_file(draft: Draft, script: Script) -> DatasetFile:
    """Reads the file of `--dataset_config`."""
    flag = draft.display_name("dataset_config")
    try:
        file = setting_files.load(draft.text("dataset_config"))
    except RecipeError as error:
        return DatasetFile(problems=[Problem(flag, error.message, "", "E1017")])
    message = foreign.describe_file(file.tree, {*GENERAL, *SUBSET, "datasets", "subsets"})
    if message or file.kind == "YAML" or not isinstance(file.tree, dict):
        message = f"{file.name} {message}" if message else f"{file.name} must be a TOML file with [[datasets]]"
        return DatasetFile(problems=[Problem(flag, message, "", "E1017")])
    if isinstance(file.tree.get("datasets"), dict):  # [[datasets.subsets]] alone, as published examples have it
        file = replace(file, tree={**file.tree, "datasets": [file.tree["datasets"]]})
    reader = _FileReader(file, draft, script, DatasetFile(file=file))
    reader.read()
    return reader.contents


@dataclass(slots=True)
class _FileReader:
    file: SettingsFile
    draft: Draft
    script: Script
    contents: DatasetFile

    def read(self) -> None:
        tree = self.file.tree
        for key in tree:
            if key not in ("general", "datasets"):
                remedy = "write it below [general] or [[datasets]]" if key in GENERAL else "write [[datasets]]"
                self._add((key,), "is outside [general] and [[datasets]]", remedy, "E1016")
        general = self._object(("general",), GENERAL) if "general" in tree else {}
        sets = tree.get("datasets")
        if not isinstance(sets, list) or not sets:
            remedy = "write [[datasets]], and below it [[datasets.subsets]]"
            self._add(("datasets",), "must be a list of tables" if "datasets" in tree else "is missing", remedy)
            return
        for number in range(min(len(sets), _MAX_SETS)):
            self._read_set(number, sets[number], general)

    def _read_set(self, number: int, raw: Any, general: Mapping[str, Value]) -> None:
        at: KeyPath = ("datasets", number)
        own = self._object(at, GENERAL, besides=("subsets",))
        subsets = raw.get("subsets") if isinstance(raw, dict) else None
        if not isinstance(subsets, list) or not subsets:
            self._add((*at, "subsets"), "is missing", "write [[datasets.subsets]] below each [[datasets]]")
            return
        kinds = {isinstance(one, dict) and "metadata_file" in one for one in subsets}
        if len(kinds) > 1:
            remedy = "write a [[datasets]] for each kind, as the scripts want it"
            self._add(at, "has subsets with and without metadata_file", remedy)
        for index in range(min(len(subsets), _MAX_SETS)):
            key_path: KeyPath = (*at, "subsets", index)
            inner = self._object(key_path, SUBSET)
            sources: dict[str, KeyPath] = {}
            for values, where in ((general, ("general",)), (own, at), (inner, key_path)):
                sources |= {key: (*where, key) for key in values}
            if not inner.get("image_dir") and not inner.get("metadata_file"):
                self._add((*key_path, "image_dir"), "is missing", "write the folder of its images")
            self.contents.subsets.append(Subset(number, fall_back(self.draft, inner, own, general), sources, key_path))

    def _object(self, key_path: KeyPath, specs: Mapping[str, Spec], besides: tuple[str, ...] = ()) -> dict[str, Value]:
        """The values of one table. besides: keys that are read elsewhere."""
        table = self.file.at(key_path)
        if not isinstance(table, dict):
            self._add(key_path, "must be a table")
            return {}
        if self.script.method == "embeddings":
            specs = {key: spec for key, spec in specs.items() if key not in _OF_DROPOUT}
        known = {**specs, **{key: Spec(key, "text", from_json=_anything) for key in besides}}
        misplaced = [key for key in table if key not in known and key in {**GENERAL, **SUBSET}]
        for key in misplaced:
            home = "[[datasets.subsets]]" if key in _OF_SUBSET else "[general] or [[datasets]]"
            remedy = f"write it in {home}"
            if key in _OF_DROPOUT:
                remedy = f"leave it out; {self.script.name}.py has no caption dropout"
            self._add((*key_path, str(key)), "does not belong here", remedy, "E1016")
        parsed = setting_files.read_object(self.file, known, key_path)
        others = {self.file.where((*key_path, str(key))) for key in misplaced}
        self.contents.problems += [problem for problem in parsed.problems if problem.where not in others]
        return {key: value for key, value in parsed.values.items() if key not in besides and value is not None}

    def _add(self, key_path: KeyPath, message: str, remedy: str = "", code: str = "E1017") -> None:
        self.contents.problems.append(self.file.problem(key_path, message, remedy, code))


# --- writing ----------------------------------------------------------------------------------------------------------

_OF_GROUPS = [key for key in GENERAL if key not in SUBSET]
"""Keys that belong to data sets, not to their subsets."""
_SHARED = [key for key in GENERAL if key not in ("class_tokens", "num_repeats")]
"""Keys that are general if all subsets have them in common."""
_ORDER = [*_OF_SUBSET, "class_tokens", "num_repeats", *GENERAL]


def write_dataset_file(subsets: Iterable[Mapping[str, Any]]) -> str:
    """The file of subsets with all of their keys. Those with the keys of a data set in common are in one."""
    entries = [{key: one[key] for key in _ORDER if key in one} for one in subsets]
    for one in entries:
        width, _, height = one.get("resolution", "").partition(",")
        one |= {"resolution": [int(width), int(height)] if height else int(width)} if width else {}
    general = _take_common(entries, _SHARED)
    groups: list[list[dict[str, Any]]] = []
    for one in entries:
        group = next((group for group in groups if _fits(one, group)), None)
        groups.append([one]) if group is None else group.append(one)
    datasets = [{**_take_common(group, _OF_GROUPS), "subsets": group} for group in groups]
    return write_toml({**({"general": general} if general else {}), "datasets": datasets})


def _take_common(entries: Sequence[dict[str, Any]], keys: Iterable[str]) -> dict[str, Any]:
    """Removes the keys that all entries have in common, and returns them."""
    first = entries[0]
    common = {key: first[key] for key in keys if all(key in one and one[key] == first.get(key) for one in entries)}
    for one in entries:
        for key in common:
            del one[key]
    return common


def _fits(one: Mapping[str, Any], group: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a subset may be in a data set with others: with the same sizes and batches, and other images."""
    same = all(one.get(key) == group[0].get(key) for key in _OF_GROUPS)
    is_alike = ("metadata_file" in one) == ("metadata_file" in group[0])
    return same and is_alike and all(one.get("image_dir") != other.get("image_dir") for other in group)
