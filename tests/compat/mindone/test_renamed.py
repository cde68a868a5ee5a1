"""Earlier names of what this folder adds."""

from __future__ import annotations

from mezzotint.tasks.migrate import migrate


def test_optimizer_file_switch_is_migrated_to_a_name() -> None:
    assert migrate("run: {export: {mindspore_optimizer: true}}\n") == "run: {export: {optimizer_file: mindone}}\n"
    assert migrate("run: {export: {mindspore_optimizer: false}}\n") == "run: {export: {optimizer_file: null}}\n"


def test_mindspore_switch_is_migrated_to_a_format() -> None:
    assert migrate("run: {export: {mindspore: true}}\n") == "run: {export: {file_format: mindspore}}\n"
    assert migrate("run: {export: {mindspore: false}}\n") == "run: {export: {file_format: safetensors}}\n"
