"""The bucket sizes that EveryDream2 lists, for `data.buckets.shape=table`: made by hand, one list a resolution.

Two entries, of 320 and 1280, are not the mirror of the one before them; they are kept, so that every picture falls
into the bucket that it falls into there. 1680x576 is the one size whose sides are no multiples of 64.
"""

from __future__ import annotations

from mezzotint.shapes import Size

_WIDE = {
    256: "384x192 512x128",
    320: "384x256 448x192 576x128",
    384: "448x320 512x256 704x192",
    448: "512x384 640x320 768x256",
    512: "576x448 640x384 768x320 896x256 1024x256",
    576: "640x512 704x448 832x384 960x320 1152x256",
    640: "704x576 768x512 832x448 896x448 1024x384 1152x320 1280x320",
    704: "768x640 832x576 960x512 1088x448 1152x384 1280x384 1280x320",
    768: "832x704 896x640 960x576 1024x576 1152x512 1280x448 1408x384 1472x320",
    832: "896x768 960x704 1024x640 1152x576 1216x512 1344x512 1536x448 1600x384",
    896: "1024x768 1088x704 1216x640 1344x576 1536x512 1792x448",
    960: "1088x832 1152x768 1280x704 1408x640 1680x576 1792x512 2048x448",
    1024: "1152x896 1216x832 1344x768 1472x704 1600x640 1792x576 2048x512",
    1088: "1152x1024 1216x896 1408x832 1536x768 1664x704 1792x640 2048x576 2304x512",
    1152: "1280x1024 1344x960 1472x896 1536x832 1728x768 1856x704 2048x640 2304x576",
    1280: "1408x1152 1600x1024 1792x896 1920x832 2112x768 2304x704 2560x640",
    1536: "1728x1344 1792x1280 2048x1152 2304x1024 2432x960 2624x896 2816x832 3072x768",
}
_NOT_MIRRORED = {(320, "576x128"): "576x640", (1280, "1408x1152"): "1408x1344"}


def sizes(resolution: int) -> tuple[Size, ...]:
    """The sizes of a resolution, in the order that decides between equally near ones: the square, then each wide size
    and its mirror. resolution: one of `recipe.data.TABLES`."""
    found = [Size(resolution, resolution)]
    for text in _WIDE[resolution].split():
        wide = _size(text)
        other = _NOT_MIRRORED.get((resolution, text))
        found += [wide, _size(other) if other else Size(wide.height, wide.width)]
    return tuple(found)


def _size(text: str) -> Size:
    width, height = text.split("x")
    return Size(int(width), int(height))
