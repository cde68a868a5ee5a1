"""What of class images, masks and ratings excludes another."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction

DRAWN = ("data.prior.path=x", "data.prior.class_prompt=a dog", "data.prior.num_class_images=5")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["data.prior.num_class_images=5"], "needs the name of the class; write data.prior.class_prompt="),
        (["data.prior.num_class_images=5", "data.captions.trigger=sks"], "needs the name of the class"),
        (["data.prior.weight=0.5"], "data.prior has no effect without class images; write data.prior.path=FOLDER"),
        (["data.mask.background=0.1"], "data.mask has no effect without masks"),
        (["data.mask.source=alpha", "data.mask.path=masks"], "is a folder of mask files; write data.mask.source=files"),
        (["data.format=image-folder", "data.rating.fraction=0.5"], "belong together; give both or none"),
        (
            ["data.format=kohya", *DRAWN],
            "needs data.format=image-folder, got kohya; generate them with mezzotint sample",
        ),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
