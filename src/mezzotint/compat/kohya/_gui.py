"""Settings files (JSON) of the LoRA, Dreambooth, finetuning and textual inversion tabs of the kohya_ss GUI: they become
the command that the GUI would start. A TOML file of options stands for --config_file."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mezzotint.compat.kit import foreign, reading, setting_files
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.kit.reading import Spec
from mezzotint.compat.kit.setting_files import SettingsFile
from mezzotint.compat.kohya import _gui_keys as keys
from mezzotint.compat.kohya._rows import ROWS, has_option
from mezzotint.compat.kohya._scripts import SCRIPTS, Script
from mezzotint.errors import Problem, RecipeError, did_you_mean

_SPECS: Mapping[str, Spec] = {row.flag: row for row in ROWS}
_KNOWN = frozenset((*_SPECS, *keys.RENAMED, *keys.FAMILY_RENAMED, *keys.ELSEWHERE, *keys.ONLY_GUI))
_OFF = (None, "", False, 0, 0.0, "0", "0.0", "False", "false")


def expand_gui_file(arguments: Sequence[str]) -> ParsedCommand | None:
    """The command of a saved settings file, None if `arguments` do not start with one. Raises RecipeError
    E1016, E1017 and E1018 with all keys that cannot be used."""
    if not arguments or arguments[0].startswith("-"):
        return None
    name, rest = arguments[0], list(arguments[1:])
    if name.lower().endswith(".toml"):
        return ParsedCommand([f"--config_file={name}", *rest])
    if not name.lower().endswith(".json"):
        return None
    try:
        file = setting_files.load(name)
    except RecipeError as error:
        raise _refusal([Problem(name, error.message.removeprefix(f"{name} "), "", "E1017")]) from None
    message = foreign.describe_file(file.tree, _KNOWN)
    if message or not isinstance(file.tree, dict):
        remedy = "" if message else "save it in the GUI's Configuration"
        raise _refusal([Problem(name, message or "is not a settings file of the GUI", remedy, "E1017")])
    translator = _Translator(file, file.tree)
    command = translator.command(name, rest)
    if translator.problems:
        raise _refusal(translator.problems)  # options that it leaves out would be reported as missing, too
    return command


def _refusal(problems: Sequence[Problem]) -> RecipeError:
    return RecipeError("the line of kohya", problems=tuple(problems))


@dataclass(slots=True)
class _Translator:
    """A translation in progress. words: the arguments of the command. flags: the options among them."""

    file: SettingsFile
    tree: Mapping[str, Any]
    words: list[str] = field(default_factory=list)
    flags: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def command(self, name: str, rest: list[str]) -> ParsedCommand:
        tab: keys.Tab = next((tab for key, tab in keys.TAB_KEYS.items() if key in self.tree), "dreambooth")
        script = self._find_script(tab)
        if script is not None:
            self._add_plain(script)
            self._add_length()
            self._add_noise()
            self._add_others(script)
            if tab == "lora":
                self._add_adapter()
            if tab == "finetune":
                self._add_metadata()
        first = [f"--script={script.name}"] if script is not None else []
        command = ParsedCommand([*first, *self.words, *rest], dropped=[name])
        command.files = {"script": self.file.name, **self.flags}
        count = self._integer("num_processes")
        if count > 1 and (self.tree.get("multi_gpu") or "multi_gpu" not in self.tree):
            command.processes, command.tool = count, "accelerate"
        return command

    def _find_script(self, tab: keys.Tab) -> Script | None:
        families = [family for key, family in keys.FAMILY_KEYS.items() if self._is_on(key)]
        if str(self.tree.get("LoRA_type", "")).startswith("Flux1"):
            families.insert(0, "flux")
        family = families[0] if families else "sd"
        if family not in keys.SCRIPTS[tab]:
            message = "the scripts have no textual inversion for this model"
            self.problems.append(Problem(self.file.name, message, "use an adapter instead", "E1018"))
            return None
        return SCRIPTS[keys.SCRIPTS[tab][family]]

    def _add_plain(self, script: Script) -> None:
        """Adds the keys that are options, under their own or another name, and refuses unknown ones."""
        for key, value in self.tree.items():
            if key not in _KNOWN:
                remedy = foreign.suggest(key, _SPECS) or did_you_mean(key, _KNOWN, "the GUI has no such key")
                self.problems.append(self.file.problem((key,), "unknown key", remedy, "E1016"))
                continue
            if key in keys.ELSEWHERE or key in keys.ONLY_GUI:
                continue
            family, flag = keys.FAMILY_RENAMED.get(key, (script.family, keys.RENAMED.get(key, key)))
            if family == script.family and has_option(script, flag):
                self._add(flag, value, key)

    def _add(self, flag: str, value: Any, *source: str) -> None:
        """Adds an option. source: its key in the file."""
        if value is None or value in ("", "False") or (flag in keys.UNSET_AT_ZERO and value in _OFF):
            return
        if keys.DEFAULTS.get(flag) == str(value):
            return
        spec, key = _SPECS[flag], source[0] if source else flag
        if isinstance(value, (dict, list)) and not (spec.form in ("texts", "numbers") and isinstance(value, list)):
            self.problems.append(self.file.problem((key,), f"must be one value, got {value!r:.40}", code="E1017"))
            return
        parts = _split(spec, value)
        _, problem = reading.value_of(spec, parts)
        if problem:
            self.problems.append(self.file.problem((key,), problem, code="E1017"))
            return
        if spec.form == "switch" and parts == ["false"]:
            return
        self.words += [f"--{flag}", *parts] if spec.form in ("texts", "numbers") else [f"--{flag}={parts[0]}"]
        self.flags[flag] = self.file.name

    def _add_length(self) -> None:
        """The GUI counts steps from its epochs unless the file has max_train_epochs or max_train_steps."""
        epochs, steps = self._integer("max_train_epochs"), self._integer("max_train_steps")
        if epochs:
            self._add("max_train_epochs", epochs)
        elif steps:
            self._add("max_train_steps", steps)
        elif self._integer("epoch") and not self.tree.get("dataset_config"):
            self._add("max_train_epochs", self._integer("epoch"), "epoch")
        if self._integer("lr_warmup_steps"):
            self._add("lr_warmup_steps", self._integer("lr_warmup_steps"))
        elif share := self._number("lr_warmup"):
            self._add("lr_warmup_steps", f"{share:g}%", "lr_warmup")

    def _add_noise(self) -> None:
        """Removes the options of the kind of noise that is not chosen."""
        kind = str(self.tree.get("noise_offset_type", ""))
        unused = {
            "Original": ("multires_noise_iterations", "multires_noise_discount"),
            "Multires": ("noise_offset", "adaptive_noise_scale", "noise_offset_random_strength"),
        }.get(kind, ())
        self.words = [word for word in self.words if word[2:].partition("=")[0] not in unused]
        for flag in unused:
            self.flags.pop(flag, None)

    def _add_others(self, script: Script) -> None:
        attention = self.tree.get("xformers")
        if attention in (True, "xformers", "true"):
            self._add("xformers", True)
        elif attention == "sdpa":
            self._add("sdpa", True, "xformers")
        if self._is_on("use_wandb"):
            self._add("log_with", "wandb", "use_wandb")
        if str(self.tree.get("max_token_length", "")) in ("150", "225") and not script.is_flow:
            self._add("max_token_length", self.tree["max_token_length"])
        lines = [line.strip() for line in str(self.tree.get("sample_prompts") or "").splitlines()]
        if prompts := [line for line in lines if line and not line.startswith("#")]:
            self._add("prompt", prompts, "sample_prompts")
        template = str(self.tree.get("template", ""))
        if template.startswith(("object", "style")) and script.method == "embeddings":
            self._add(f"use_{template.partition(' ')[0]}_template", True, "template")
        for key in ("stop_text_encoder_training", "stop_text_encoder_training_pct"):
            if self._number(key) and has_option(script, "stop_text_encoder_training"):
                message = "training the text encoder for a part of the run is not supported"
                self.problems.append(self.file.problem((key,), message, "write 0"))
        if script.method == "weights" and has_option(script, "train_text_encoder"):
            rates = [self._number(key) for key in ("learning_rate_te1", "learning_rate_te2")]
            if any(rates) and "train_text_encoder" not in self.tree:
                self._add("train_text_encoder", True, "learning_rate_te1")
        try:
            self.words += shlex.split(str(self.tree.get("additional_parameters") or ""))
        except ValueError:
            message = "has a quotation mark without its partner"
            self.problems.append(self.file.problem(("additional_parameters",), message, code="E1017"))

    def _add_adapter(self) -> None:
        kind = self.tree["LoRA_type"]
        if not isinstance(kind, str) or kind not in keys.ADAPTERS:
            remedy = did_you_mean(str(kind), keys.ADAPTERS, f"known are {', '.join(keys.ADAPTERS)}")
            message = f"there is no {kind}" if isinstance(kind, str) else f"must be a text, got {json.dumps(kind)}"
            self.problems.append(self.file.problem(("LoRA_type",), message, remedy, "E1017"))
            return
        module, fixed, always, optional = keys.ADAPTERS[kind]
        self._add("network_module", module, "LoRA_type")
        arguments = dict(fixed)
        if module == "lycoris.kohya" and self.tree.get("LyCORIS_preset"):
            arguments["preset"] = str(self.tree["LyCORIS_preset"])
        for key in (*always, *optional):
            value = self.tree.get(key)
            is_given = value not in (None, "") if key in always else value not in (*_OFF, *keys.NONE_AS_ALL)
            if is_given:
                name = keys.ARGUMENT_NAMES.get(key, key) if module == "lycoris.kohya" else key
                arguments[name] = str(value)
        if self._is_on("train_lora_ggpo"):
            arguments |= {key: str(self.tree[key]) for key in ("ggpo_sigma", "ggpo_beta") if key in self.tree}
        if arguments:
            self._add("network_args", [f"{name}={value}" for name, value in arguments.items()], "LoRA_type")
        self._add_adapter_rates()

    def _add_adapter_rates(self) -> None:
        """Rates of 0 train only the other part; if both are 0, learning_rate is that of both."""
        unet, text = self._number("unet_lr"), self._number("text_encoder_lr")
        if unet:
            self._add("unet_lr", self.tree["unet_lr"])
        if text:
            self._add("text_encoder_lr", self.tree["text_encoder_lr"])
        if unet and not text:
            self._add("network_train_unet_only", True, "text_encoder_lr")
        elif text and not unet:
            self._add("network_train_text_encoder_only", True, "unet_lr")

    def _add_metadata(self) -> None:
        """The finetuning tab always uses buckets, and a metadata file, which it writes before it trains."""
        if not self._is_on("enable_bucket"):
            self._add("enable_bucket", True)
        if self.tree.get("dataset_config"):
            return
        which = "latent" if self.tree.get("use_latent_files") == "Yes" else "caption"
        name = str(
            self.tree.get(f"{which}_metadata_filename") or ("meta_lat.json" if which == "latent" else "meta_cap.json")
        )
        folder = str(self.tree.get("train_dir") or ".").rstrip("/\\")
        self._add("in_json", f"{folder}/{name}", f"{which}_metadata_filename")

    def _is_on(self, key: str) -> bool:
        return self.tree.get(key) not in _OFF

    def _number(self, key: str) -> float:
        """A number of the file, also if it is a text; 0 if it is none. Of a list, the first other than 0."""
        value = self.tree.get(key)
        if isinstance(value, list):
            value = next((one for one in value if isinstance(one, (int, float)) and one), 0)
        try:
            number = float(str(value).split(" ")[0]) if value not in _OFF else 0.0
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
        self.problems.append(self.file.problem((key,), f"must be a number, got {value!r:.40}", code="E1017"))
        return 0.0

    def _integer(self, key: str) -> int:
        return int(self._number(key))


def _split(spec: Spec, value: Any) -> list[str]:
    """The words of an option's value."""
    if isinstance(value, list):
        return [str(one) for one in value]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, float) and value.is_integer() and spec.form in ("whole", "text"):
        return [str(int(value))]
    if isinstance(value, str) and spec.form == "whole" and value.strip().endswith(".0"):
        return [value.strip()[:-2]]
    if spec.form in ("texts", "numbers"):
        return str(value).replace('"', "").split()
    if spec.form == "switch" and value in (0, 1, "0", "1"):
        return ["true" if str(value) == "1" else "false"]
    return [str(value).strip()]
