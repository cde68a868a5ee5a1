"""Data set files (TOML): `[general]` and `[[datasets]]`, without subsets. The value of a data set has priority over the
general one; then comes the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mezzotint.compat.kit import foreign, setting_files
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.reading import Form, Spec, Value
from mezzotint.compat.kit.setting_files import SettingsFile
from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading.yaml_rules import KeyPath

_MAX_SETS = 1000


def _resolution(raw: Any) -> Value:
    """Width and height of a side or a pair. Raises ValueError."""
    values = raw if isinstance(raw, list) else [raw, raw]
    if len(values) != 2 or not all(type(value) is int for value in values):
        raise ValueError(f"must be a side, or [width, height], got {raw!r:.40}")
    return tuple(values)


def _frames(raw: Any) -> Value:
    """Numbers of frames. Raises ValueError."""
    values = raw if isinstance(raw, list) else [raw]
    if not values or not all(type(value) is int and value > 0 for value in values):
        raise ValueError(f"must be a list of whole numbers above 0, got {raw!r:.40}")
    return tuple(values)


def _anything(raw: Any) -> Value:
    return repr(raw)


def _specs(form: Form, names: str, **more: Any) -> dict[str, Spec]:
    return {name: Spec(name, form, **more) for name in names.split()}


GENERAL: Mapping[str, Spec] = {
    **_specs("numbers", "resolution", from_json=_resolution),
    **_specs("text", "caption_extension"),
    **_specs("whole", "batch_size num_repeats"),
    **_specs("switch", "enable_bucket bucket_no_upscale"),
}
"""The keys of `[general]`."""
SOURCES = ("image_directory", "image_jsonl_file", "video_directory", "video_jsonl_file")
"""Keys of which a data set has one."""
_OF_IMAGES = {
    **_specs("text", "fp_1f_clean_indices", from_json=_anything),
    **_specs("numbers", "control_resolution qwen_image_edit_control_resolution", from_json=_resolution),
    **_specs("switch", "multiple_target no_resize_control fp_1f_no_post flux_kontext_no_resize_control "
             "qwen_image_edit_no_resize_control"),
    **_specs("whole", "fp_1f_target_index"),
}  # fmt: skip
_OF_CLIPS = {
    **_specs("numbers", "target_frames", from_json=_frames),
    **_specs("text", "frame_extraction", choices=("head", "chunk", "slide", "uniform", "full")),
    **_specs("whole", "frame_stride frame_sample max_frames"),
    **_specs("number", "source_fps"),
}
DATASET: Mapping[str, Spec] = {
    **GENERAL,
    **_specs("text", f"{' '.join(SOURCES)} cache_directory control_directory"),
    **_specs("whole", "fp_latent_window_size"),
    **_OF_IMAGES,
    **_OF_CLIPS,
}
"""The keys of `[[datasets]]`."""

DEFAULTS: Mapping[str, Value] = {
    "resolution": (960, 544), "batch_size": 1, "num_repeats": 1, "target_frames": (1,), "frame_extraction": "head",
    "frame_stride": 1, "frame_sample": 1, "max_frames": 129,
}  # fmt: skip
"""Values of keys that nothing sets; None or false for others."""


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """A data set with its settings. values: by key, with all fall-backs. sources: the key path of each value that the
    file has. source: the one of `SOURCES` that it has. key_path: of its table."""

    values: Mapping[str, Value]
    sources: Mapping[str, KeyPath]
    source: str
    key_path: KeyPath

    @property
    def has_clips(self) -> bool:
        return self.source.startswith("video")

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int:
        value = self.values.get(key)
        return value if isinstance(value, int) else 0

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.values.get(key)
        assert isinstance(value, tuple), key
        return tuple(int(one) for one in value)

    def is_on(self, key: str) -> bool:
        return self.values.get(key) is True


@dataclass(slots=True)
class SetsFile:
    """The content of a file."""

    file: SettingsFile
    sets: list[TrainingSet] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, key_path: KeyPath, message: str, remedy: str = "", code: str = "E1017") -> None:
        """Adds a problem of a key."""
        self.problems.append(self.file.problem(key_path, message, remedy, code))

    def add_awaited(self, one: TrainingSet, key: str, feature: str, remedy: str = "leave it out") -> None:
        """Adds the problem of a key that waits for a feature."""
        key_path = one.sources.get(key, (*one.key_path, key))
        self.add(key_path, f"needs {feature}, which Mezzotint does not have yet", remedy, "E1018")


def read_dataset_file(draft: Draft) -> SetsFile | None:
    """Reads the file of `--dataset_config`; None, with a problem of the draft, if it cannot be read."""
    flag = "dataset_config"
    if not draft.text(flag):
        draft.refuse(flag, "is missing; it names the TOML file of data sets", code="E1017")
        return None
    try:
        file = setting_files.load(draft.text(flag))
    except RecipeError as error:
        draft.refuse(flag, error.message, code="E1017")
        return None
    message = foreign.describe_file(file.tree, {*DATASET, "datasets"})
    if message or file.kind == "YAML" or not isinstance(file.tree, dict):
        message = f"{file.name} {message}" if message else f"{file.name} must be a TOML file with [[datasets]]"
        draft.refuse(flag, message, code="E1017")
        return None
    contents = SetsFile(file)
    for key in file.tree:
        if key not in ("general", "datasets"):
            remedy = "write it below [general] or [[datasets]]" if key in DATASET else "write [[datasets]]"
            contents.add((key,), "is outside [general] and [[datasets]]", remedy, "E1016")
    general = _read_table(contents, ("general",), GENERAL) if "general" in file.tree else {}
    sets = file.tree.get("datasets")
    if not isinstance(sets, list) or not sets:
        contents.add(("datasets",), "must be a list of tables" if "datasets" in file.tree else "is missing",
                     "write [[datasets]], and below it image_directory or video_directory")  # fmt: skip
        return contents
    for number in range(min(len(sets), _MAX_SETS)):
        _read_set(contents, ("datasets", number), general)
    return contents


def _read_set(contents: SetsFile, key_path: KeyPath, general: Mapping[str, Value]) -> None:
    own = _read_table(contents, key_path, DATASET)
    present = [key for key in SOURCES if own.get(key)]
    if len(present) != 1:
        message = f"must have one of {', '.join(SOURCES)}, has {' and '.join(present) or 'none'}"
        contents.add(key_path, message)
        return
    others = _OF_IMAGES if present[0].startswith("video") else _OF_CLIPS
    for key in own.keys() & others.keys():
        kind = "images" if others is _OF_IMAGES else "clips"
        contents.add((*key_path, key), f"is for data sets of {kind}", "leave it out", "E1016")
    sources = {key: ("general", key) for key in general} | {key: (*key_path, key) for key in own}
    contents.sets.append(TrainingSet({**DEFAULTS, **general, **own}, sources, present[0], key_path))


def _read_table(contents: SetsFile, key_path: KeyPath, specs: Mapping[str, Spec]) -> dict[str, Value]:
    table = contents.file.at(key_path)
    if not isinstance(table, dict):
        contents.add(key_path, "must be a table")
        return {}
    misplaced = [str(key) for key in table if key not in specs and (key in DATASET or key == "subsets")]
    for key in misplaced:
        remedy = "leave it out; a data set has no subsets" if key == "subsets" else "write it in [[datasets]]"
        contents.add((*key_path, key), "does not belong here", remedy, "E1016")
    parsed = setting_files.read_object(contents.file, specs, key_path)
    places = {contents.file.where((*key_path, key)) for key in misplaced}
    contents.problems += [problem for problem in parsed.problems if problem.where not in places]
    return {key: value for key, value in parsed.values.items() if value is not None}
