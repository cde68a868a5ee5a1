"""Caption templates around a learned token, from Gal et al. 2022 (arXiv:2208.01618), whose code has them under the MIT
licence (`LICENSES/textual_inversion.txt`)."""

from __future__ import annotations

_OBJECT = (
    "a photo of a {}", "a rendering of a {}", "a cropped photo of the {}", "the photo of a {}",
    "a photo of a clean {}", "a photo of a dirty {}", "a dark photo of the {}", "a photo of my {}",
    "a photo of the cool {}", "a close-up photo of a {}", "a bright photo of the {}", "a cropped photo of a {}",
    "a photo of the {}", "a good photo of the {}", "a photo of one {}", "a close-up photo of the {}",
    "a rendition of the {}", "a photo of the clean {}", "a rendition of a {}", "a photo of a nice {}",
    "a good photo of a {}", "a photo of the nice {}", "a photo of the small {}", "a photo of the weird {}",
    "a photo of the large {}", "a photo of a cool {}", "a photo of a small {}",
)  # fmt: skip
_STYLE = tuple(
    f"{subject} in the style of {{}}"
    for subject in (
        "a painting", "a rendering", "a cropped painting", "the painting", "a clean painting", "a dirty painting",
        "a dark painting", "an image", "a cool painting", "a close-up painting", "a bright painting",
        "a cropped painting", "a good painting", "a close-up painting", "a rendition", "a nice painting",
        "a small painting", "a weird painting", "a large painting",
    )
)  # fmt: skip
SENTENCES = {"object": _OBJECT, "style": _STYLE}
"""Captions by `learnable_property`; one is sampled at each visit."""
