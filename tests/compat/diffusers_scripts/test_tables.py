"""The tables of scripts, flags, settings and notes fit together."""

from __future__ import annotations

from mezzotint import registry
from mezzotint.compat.diffusers_scripts._flags import FLAGS, SETTINGS
from mezzotint.compat.diffusers_scripts._notes import REMARKS
from mezzotint.compat.diffusers_scripts._scripts import SCRIPTS
from mezzotint.compat.diffusers_scripts.dialect import DIALECTS


def test_each_script_is_registered() -> None:
    assert {name for name in registry.names("dialects") if name.startswith("diffusers-")} == DIALECTS.keys()
    assert len(DIALECTS) == len(SCRIPTS)


def test_each_selector_names_a_script() -> None:
    selectors = {*(one[0] for one in FLAGS), *(one[0] for one in SETTINGS), *(one.scripts for one in REMARKS)}
    words = {word for selector in selectors for word in selector.split()}
    assert {word for word in words if not any(script.is_one_of(word) for script in SCRIPTS)} == set()


def test_scripts_have_the_flags_of_their_defaults_and_notes() -> None:
    for script in SCRIPTS:
        flags = {row.flag for row in DIALECTS[f"diffusers-{script.name}"].rows} | {""}
        of_settings = {flag for selector, words, _ in SETTINGS if script.is_one_of(selector) for flag in words.split()}
        of_notes = {one.flag for one in REMARKS if script.is_one_of(one.scripts)}
        assert of_settings | of_notes | script.defaults.keys() <= flags, script.name
