"""Earlier names of what this folder adds."""

from __future__ import annotations

from mezzotint.tasks.migrate import migrate


def test_the_optimizer_file_has_a_name_where_it_was_a_switch() -> None:
    assert migrate("run: {export: {mindspore_optimizer: true}}\n") == "run: {export: {optimizer_file: mindone}}\n"
    assert migrate("run: {export: {mindspore_optimizer: false}}\n") == "run: {export: {optimizer_file: null}}\n"


def test_checkpoints_of_mindspore_have_a_format_where_they_were_a_switch() -> None:
    assert migrate("run: {export: {mindspore: true}}\n") == "run: {export: {file_format: mindspore}}\n"
    assert migrate("run: {export: {mindspore: false}}\n") == "run: {export: {file_format: safetensors}}\n"
