"""What is said of families before anything of them is loaded."""

from __future__ import annotations

import pytest

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.settings.families import base


def test_every_family_has_facts_and_a_network_module() -> None:
    assert {spec.name for spec in base.specs()} == set(registry.names("families"))
    for spec in base.specs():
        assert set(spec.trainable) | set(spec.text_parts) <= set(spec.parts)
        assert spec.folders.keys() <= set(spec.parts)


def test_section_of_another_family_is_refused() -> None:
    owners = [spec for spec in base.specs() if spec.settings is not None]
    for owner in owners:
        assert owner.section not in base.find_refused_settings(owner)
        others = [spec for spec in base.specs() if spec.name != owner.name]
        assert all(
            f"it belongs to family {owner.name}" == base.find_refused_settings(spec)[owner.section] for spec in others
        )


def test_single_files_are_recognized_by_unique_names() -> None:
    families = {spec.name for spec in base.specs() if spec.names_tensors(["pos_embed.proj.weight", "temp_embed"])}
    assert "sd" not in families
    assert not any(spec.names_tensors(["conv_in.weight"]) for spec in base.specs() if spec.tensor_names == "")


def test_unknown_family_suggests_the_nearest() -> None:
    with pytest.raises(RecipeError, match="did you mean sdxl") as caught:
        base.family_spec("sdlx")
    assert caught.value.code == "E1010"
