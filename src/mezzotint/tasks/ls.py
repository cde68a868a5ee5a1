"""`mezzotint ls`: what can be named in a recipe or on a command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mezzotint import registry
from mezzotint.assets import MODELS
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.settings.reading.read import SCHEMA_COMMENT, shipped_recipes
from mezzotint.tasks.reading import command_line, foreign


def run(arguments: Sequence[str]) -> int:
    """Lists everything, or the kinds that are named. Raises RecipeError E1012 for an unknown kind."""
    kinds, named = list_kinds(), command_line.parse(arguments, "ls").plain
    for word in named:
        if word not in kinds:
            hint = did_you_mean(word, kinds, f"it lists {', '.join(kinds)}")
            raise RecipeError(f"mezzotint ls does not know {word!r}; {hint}", code="E1012")
    for kind in named or kinds:
        entries = kinds[kind]()
        width = max((len(name) for name in entries), default=0)
        print(kind)
        for name, about in entries.items():
            print(f"  {name:<{width}}  {about}".rstrip())
        if not entries:
            print("  none")
    return 0


def list_kinds() -> dict[str, Callable[[], dict[str, str]]]:
    """What can be listed: by kind, a function that gives names and texts."""
    return {
        "recipes": lambda: {name: title(path) for name, path in shipped_recipes().items()},
        "models": _models,
        "families": lambda: registry.about("families"),
        "formats": lambda: registry.about("data/formats"),
        "dialects": _dialects,
        "runtimes": lambda: registry.about("runtimes"),
        "optimizers": lambda: registry.about("settings/optimizers"),
        "callbacks": lambda: registry.about("training/callbacks"),
    }


def _dialects() -> dict[str, str]:
    names = registry.names("dialects", skip_unimported=True)
    return registry.about("dialects") | {name: foreign.find_dialect(name).about for name in names}


def title(path: Path) -> str:
    """The first non-empty comment line of a recipe, except the schema line; "" without one."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith(SCHEMA_COMMENT) and line.strip("# "):
            return line.strip("# ").strip()
        if line.strip() and not line.startswith("#"):
            break
    return ""


def _models() -> dict[str, str]:
    """The shipped models for `model.path` and `model.config`, and whether their weights are included."""
    folders = sorted({path.parent for name in ("config.json", "model_index.json") for path in MODELS.glob(f"*/{name}")})
    whole, bare = "complete, with weights", "configurations, without weights"
    return {folder.name: whole if any(folder.rglob("*.safetensors")) else bare for folder in folders}
