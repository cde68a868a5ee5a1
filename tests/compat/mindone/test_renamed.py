"""Earlier names of what this folder adds."""

from __future__ import annotations

from mezzotint.tasks.migrate import migrate


def test_the_optimizer_file_has_a_name_where_it_was_a_switch() -> None:
    assert migrate("run: {export: {mindspore_optimizer: true}}\n") == "run: {export: {optimizer_file: mindone}}\n"
    assert migrate("run: {export: {mindspore_optimizer: false}}\n") == "run: {export: {optimizer_file: null}}\n"
