"""Messages for pydantic's errors, with the invalid value."""

from __future__ import annotations

from typing import Any, get_args

from mezzotint.settings.counting import nearest_multiples
from mezzotint.settings.reading.paths import Setting, first_sentence

NUMBER: dict[Any, str] = {int: "a whole number", float: "a number"}

_RANGE = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
    "multiple_of": ("a multiple of", "multiple_of"),
}
_TYPE = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text; put it in quotes",
    "path_type": "a path; put it in quotes",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping such as {name: value}",
}


def message_for(entry: dict[str, Any], setting: Setting | None) -> tuple[str, str]:
    """(code, sentence) for an error of pydantic. setting: the one it concerns, if any."""
    kind, value, context = entry["type"], entry.get("input"), entry.get("ctx", {})
    got = f"got {format_value(value)}"
    if kind in _RANGE:
        comparison, name = _RANGE[kind]
        sentence = f"must be {comparison} {format_number(context[name])}, {got}"
        if kind == "multiple_of" and isinstance(value, int):
            sentence += f"; {nearest_multiples(value, int(context[name]))}"
        return "E1007", sentence
    if kind in _TYPE:
        expected, _, hint = (_list_of(setting, value) or _TYPE[kind]).partition("; ")
        return "E1002", f"must be {expected}, {got}" + (f"; {hint}" if hint else "")
    if kind == "literal_error":
        choices = setting.shape.choices if setting else ()
        listed = ", ".join(choices) or str(context["expected"]).replace("'", "")
        return "E1007", f"must be {'one of ' if len(choices) > 1 else ''}{listed}, {got}"
    if kind in ("too_long", "too_short"):
        bound = context.get("max_length", context.get("min_length"))
        most = "at most" if kind == "too_long" else "at least"
        return "E1002", f"must have {most} {bound} entries, got {context['actual_length']}"
    if kind == "string_pattern_mismatch":
        form = first_sentence(setting.help) if setting else f"the form is {context['pattern']}"
        return "E1007", f"has an invalid form, {got}; {form[:1].lower()}{form[1:]}"
    if kind in ("model_type", "model_attributes_type"):
        if value is None:
            return "E1002", "there is nothing below this key; remove the line or add settings"
        return "E1002", f"must be a group of settings, {got}"
    if kind == "union_tag_invalid":
        listed = str(context["expected_tags"]).replace("'", "")
        return "E1007", f"must be one of {listed}, got {format_value(context['tag'])}"
    return "E1002", f"cannot be used here, {got}"


def _list_of(setting: Setting | None, value: Any) -> str:
    """The name of a list with a fixed number of entries, with an example made of the single value given; ""
    otherwise."""
    entries = get_args(setting.shape.base) if setting is not None and setting.shape.is_list else ()
    if not entries or Ellipsis in entries or isinstance(value, (dict, list, tuple)):
        return ""
    example = (
        f"; write it like [{', '.join([format_value(value)] * len(entries))}]"
        if isinstance(value, (int, float))
        else ""
    )
    return f"a list of {len(entries)}{example}"


def format_value(value: Any) -> str:
    """A value as a message shows it: short, and as written in a recipe."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {format_value(inner)}" for key, inner in value.items()) + "}"
        return text if len(text) <= 60 else f"a mapping of {len(value)}"
    if isinstance(value, (list, tuple)):
        text = "[" + ", ".join(format_value(item) for item in value) + "]"
        return text if len(text) <= 60 else f"a list of {len(value)}"
    if isinstance(value, (int, float)):
        return format_number(value)
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "…")


def format_number(value: float) -> str:
    """A number without a float's trailing digits: 0, 2.5, 1e-05."""
    if isinstance(value, int):
        text = str(value)
        return text if len(text) <= 40 else f"a number of {len(text)} digits"
    return f"{value:g}" if value == float(f"{value:g}") else repr(value)
