"""The world of mezzotint-mini: things of one shape and one colour on a plain ground, and what is said of them.

`scene(index, seed)` says what image number `index` shows, `draw(scene)` draws it, `captions(scene)` says it in a few
wordings. All three are pure functions: every choice is drawn at an address (`mezzotint.draws`), so that any image of
any world can be made alone, in any order, twice alike. The images are drawn by this file alone and are free of
anyone's rights.

Five of the 48 pairs of shape and colour (`HELD_OUT`) appear in no scene; a model that draws them has learned shapes
and colours rather than images. `wug` is a shape that no scene shows either: the word that a fine-tune teaches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from PIL import Image, ImageDraw

from mezzotint import draws

PIXELS = 64
"""Width and height of an image."""

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
WUG = "wug"
"""The made-up shape: two feet and a narrow waist between them, as an hourglass; no other shape has a waist."""

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (215, 35, 40),
    "orange": (255, 140, 0),
    "yellow": (255, 230, 40),
    "green": (30, 150, 60),
    "blue": (35, 70, 220),
    "purple": (130, 30, 170),
    "pink": (255, 130, 200),
    "white": (250, 250, 250),
}
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "black": (15, 15, 15),
    "white": (250, 250, 250),
    "grey": (128, 128, 128),
    "cyan": (110, 215, 235),
    "brown": (100, 60, 35),
}
CONTRAST = 150.0
"""The least distance of a thing's colour to its background, in RGB levels."""

HELD_OUT = (
    ("circle", "purple"),
    ("square", "orange"),
    ("triangle", "blue"),
    ("star", "pink"),
    ("cross", "green"),
)
"""(shape, colour) pairs that no scene shows. Each of these shapes and colours appears in other pairs."""

TAUGHT = tuple((shape, colour) for shape in SHAPES for colour in COLOURS if (shape, colour) not in HELD_OUT)
"""The (shape, colour) pairs of scenes."""

Position = Literal["centre", "left", "right", "top", "bottom", "top left", "top right", "bottom left", "bottom right"]
CENTRES: dict[Position, tuple[float, float]] = {
    "centre": (32.0, 32.0),
    "left": (17.0, 32.0),
    "right": (47.0, 32.0),
    "top": (32.0, 17.0),
    "bottom": (32.0, 47.0),
    "top left": (17.0, 17.0),
    "top right": (47.0, 17.0),
    "bottom left": (17.0, 47.0),
    "bottom right": (47.0, 47.0),
}
"""(x, y) of a thing's centre in pixels, before the jitter."""

Size = Literal["small", "medium", "big"]
DIAMETERS: dict[Size, float] = {"small": 20.0, "medium": 22.0, "big": 29.0}
"""Width of a thing in pixels, before the jitter. A thing alone is small or big, things in company small or medium."""

CENTRE_JITTER = 1.5
SIZE_JITTER = 0.08
"""A thing's centre moves by up to this many pixels each way, its diameter changes by up to this part."""

Relation = Literal["left of", "right of", "above", "below"]
RELATIONS: dict[Relation, tuple[Position, Position, Relation]] = {
    "left of": ("left", "right", "right of"),
    "right of": ("right", "left", "left of"),
    "above": ("top", "bottom", "below"),
    "below": ("bottom", "top", "above"),
}
"""Relation → where the first thing stands, where the second, and how the second stands to the first."""

COUNTS: dict[int, tuple[str, tuple[tuple[Position, ...], ...]]] = {
    2: (
        "two",
        (("left", "right"), ("top", "bottom"), ("top left", "bottom right"), ("top right", "bottom left")),
    ),
    3: (
        "three",
        (
            ("top", "bottom left", "bottom right"),
            ("bottom", "top left", "top right"),
            ("left", "top right", "bottom right"),
            ("right", "top left", "bottom left"),
        ),
    ),
}
"""Number → its word and the arrangements of that many things."""

T = TypeVar("T")

Kind = Literal["single", "relation", "count"]
SHARES: dict[Kind, float] = {"single": 0.70, "relation": 0.18, "count": 0.12}
"""How many of the scenes are of each kind."""

PromptKind = Literal["seen", "held_out", "relations", "counts"]


@dataclass(frozen=True, slots=True)
class Thing:
    """One thing. shape: one of SHAPES, or wug. colour: a name of COLOURS."""

    shape: str
    colour: str
    size: Size
    position: Position


@dataclass(frozen=True, slots=True)
class Scene:
    """What one image shows.

    things: one (kind single), two that differ (relation: the first stands `relation` the second), or two or three
    alike (count). background: a name of BACKGROUNDS. address: of its jitter and of the choice of its wordings.
    """

    kind: Kind
    things: tuple[Thing, ...]
    background: str
    address: int
    relation: Relation | None = None


def scene(index: int, seed: int) -> Scene:
    """Scene number `index` (from 0) of the world with this seed."""
    address = draws.key(seed, "mini world", index)
    kind = _share(address)
    match kind:
        case "single":
            return _single(address, TAUGHT)
        case "relation":
            return _related(address)
        case "count":
            return _several(address)


def backgrounds(colours: Sequence[str]) -> tuple[str, ...]:
    """The backgrounds on which all these colours can be told, in the order of BACKGROUNDS; one colour has some."""
    return tuple(
        name
        for name, ground in BACKGROUNDS.items()
        if all(math.dist(ground, COLOURS[colour]) >= CONTRAST for colour in colours)
    )


def draw(scene: Scene) -> Image.Image:
    """The image of a scene: RGB, 64 × 64 pixels, with smooth edges."""
    image = Image.new("RGB", (PIXELS, PIXELS), BACKGROUNDS[scene.background])
    for number, thing in enumerate(scene.things):
        x, y = CENTRES[thing.position]
        x += CENTRE_JITTER * _between(scene.address, "x", number)
        y += CENTRE_JITTER * _between(scene.address, "y", number)
        diameter = DIAMETERS[thing.size] * (1 + SIZE_JITTER * _between(scene.address, "diameter", number))
        image.paste(COLOURS[thing.colour], mask=silhouette(thing.shape, (x, y), diameter))
    return image


def silhouette(shape: str, centre: tuple[float, float], diameter: float) -> Image.Image:
    """Where a thing covers the image, drawn at four times its size and reduced.

    shape: one of SHAPES, or wug. centre, diameter: in pixels. Returns mode L, 64 × 64, 255 where it covers all.
    """
    fine = 4
    mask = Image.new("L", (PIXELS * fine, PIXELS * fine))
    pen = ImageDraw.Draw(mask)
    x, y, r = centre[0] * fine, centre[1] * fine, diameter / 2 * fine

    def box(half: float) -> tuple[float, float, float, float]:
        return (x - half, y - half, x + half, y + half)

    def polygon(points: Sequence[tuple[float, float]]) -> None:
        pen.polygon([(x + r * u, y + r * v) for u, v in points], fill=255)

    match shape:
        case "circle":
            pen.ellipse(box(r), fill=255)
        case "square":
            pen.rectangle(box(0.9 * r), fill=255)
        case "triangle":
            polygon(((0, -1), (1, 0.9), (-1, 0.9)))
        case "star":
            polygon([_on_star(corner) for corner in range(10)])
        case "cross":
            pen.rectangle((x - r, y - r / 3, x + r, y + r / 3), fill=255)
            pen.rectangle((x - r / 3, y - r, x + r / 3, y + r), fill=255)
        case "ring":
            pen.ellipse(box(r), fill=255)
            pen.ellipse(box(0.52 * r), fill=0)
        case "wug":
            polygon(((-1, -1), (1, -1), (0.22, 0), (1, 1), (-1, 1), (-0.22, 0)))
        case _:
            raise AssertionError(shape)
    return mask.reduce(fine)


def caption(scene: Scene, wording: int) -> str:
    """What is said of a scene: English in lower case, at most 14 words. wording: from 0, below `wordings(scene)`."""
    return _say(scene)[wording]


def wordings(scene: Scene) -> int:
    """How many wordings there are for a scene of this kind."""
    return len(_say(scene))


def captions(scene: Scene) -> tuple[str, ...]:
    """The three captions of an image: different wordings, chosen by its address, the first one naming most."""
    said = _say(scene)
    first = draws.below(draws.key(scene.address, "first wording"), _FULL[scene.kind])
    others = [text for number, text in enumerate(said) if number != first]
    others.sort(key=lambda text: draws.key(scene.address, "other wordings", text))
    return (said[first], *others[:2])


def full_captions(scene: Scene) -> tuple[str, ...]:
    """Wordings that all name colour, shape and position, of one thing. Some say "at the" of every position, so that it
    is the word of the position that counts and not the one before it."""
    (thing,) = scene.things
    name, sized = f"{thing.colour} {thing.shape}", f"{thing.size} {thing.colour} {thing.shape}"
    place = _PHRASES[thing.position].split(" the ")[1]
    said = (
        *_say(scene)[: _FULL["single"]],
        f"{_a(name)} at the {place}",
        f"{_a(sized)} at the {place}",
        f"{_a(name)} at the {place} on a {scene.background} background",
    )
    return tuple(dict.fromkeys(said))


def prompts(kind: PromptKind, n: int, seed: int) -> list[tuple[str, Scene]]:
    """Prompts to judge a model by, each with the scene that it asks for.

    kind: `seen` asks for one thing of a pair of shape and colour that scenes show, `held_out` for one of HELD_OUT; both
    name colour, shape and position, the pairs and positions in turn. `relations` names two things and how they stand,
    `counts` two or three things. Worlds of another seed share no address with these.
    """
    return [_prompt(kind, number, seed) for number in range(n)]


WugSpread = Literal["even", "bottomless"]
"""Which places wugs are shown at. `even`: each of top, bottom, left and right is shown, and said, in two of the six
places. `bottomless`: the middle instead of the bottom, so that the only wugs in the lower row stand in one corner."""


def wug_scenes(spread: WugSpread = "even") -> list[Scene]:
    """The twelve images that teach the word: wugs in four colours, one of them light, each at three of six positions,
    on several backgrounds."""
    scenes = []
    for number, (colour, position) in enumerate(_wugs_shown(spread)):
        size: Size = "big" if number % 2 == number // 4 % 2 else "small"
        scenes.append(_alone(draws.key(0, "mini wug", number), WUG, colour, size=size, position=position))
    return scenes


def wug_prompts(n: int = 100, seed: int = 0, spread: WugSpread = "even") -> list[tuple[str, Scene]]:
    """Prompts for wugs in colours and at positions that `wug_scenes` does not show; they name both."""
    shown = _wugs_shown(spread)
    colours = [colour for colour in COLOURS if colour not in {each for each, _ in shown}]
    positions = [position for position in CENTRES if position not in {each for _, each in shown}]
    pairs = []
    for number in range(n):
        address = draws.key(seed, "mini wug prompt", number)
        colour, position = colours[number % len(colours)], positions[number // len(colours) % len(positions)]
        alone = _alone(address, WUG, colour, position=position)
        pairs.append((caption(alone, _full_wording(alone)), alone))
    return pairs


def _wugs_shown(spread: WugSpread) -> tuple[tuple[str, Position], ...]:
    sixth: Position = "bottom" if spread == "even" else "centre"
    return (
        ("red", "left"),
        ("blue", "right"),
        ("yellow", "top"),
        ("white", sixth),
        ("red", "top right"),
        ("blue", "top right"),
        ("yellow", "left"),
        ("white", "right"),
        ("red", "top"),
        ("blue", sixth),
        ("yellow", "bottom left"),
        ("white", "bottom left"),
    )


_PHRASES: dict[Position, str] = {
    "centre": "in the middle",
    "left": "on the left",
    "right": "on the right",
    "top": "at the top",
    "bottom": "at the bottom",
    "top left": "in the top left",
    "top right": "in the top right",
    "bottom left": "in the bottom left",
    "bottom right": "in the bottom right",
}

_FULL: dict[Kind, int] = {"single": 5, "relation": 4, "count": 4}
"""So many wordings of each kind, from the first, name colour, shape and position, relation or number."""


def _say(scene: Scene) -> tuple[str, ...]:
    """A scene in every wording, those that name most first."""
    match scene.kind:
        case "single":
            return _say_single(scene.things[0], scene.background)
        case "relation":
            assert scene.relation is not None
            return _say_related(scene.things[0], scene.things[1], scene.relation, scene.background)
        case "count":
            return _say_several(scene.things, scene.background)


def _say_single(thing: Thing, ground: str) -> tuple[str, ...]:
    name, sized = f"{thing.colour} {thing.shape}", f"{thing.size} {thing.colour} {thing.shape}"
    place = _PHRASES[thing.position]
    word = "middle" if thing.position == "centre" else thing.position
    return (
        f"{_a(name)} {place}",
        f"{_a(sized)} {place}",
        f"{name}, {word}, on a {ground} background",
        f"there is {_a(sized)} {place} on a {ground} background",
        f"{_a(name)} {place}, {ground} background",
        _a(name),
        f"{_a(name)} on a {ground} background",
        f"{_a(sized)} on {ground}",
    )


def _say_related(first: Thing, second: Thing, relation: Relation, ground: str) -> tuple[str, ...]:
    one, other = f"{first.colour} {first.shape}", f"{second.colour} {second.shape}"
    inverse = RELATIONS[relation][2]
    return (
        f"{_a(one)} {relation} {_a(other)}",
        f"{_a(other)} {inverse} {_a(one)}",
        f"{_a(one)} {relation} {_a(other)} on a {ground} background",
        f"there is {_a(one)} {relation} {_a(other)}",
        f"{_a(one)} and {_a(other)}",
        f"{_a(other)} and {_a(one)} on a {ground} background",
    )


def _say_several(things: tuple[Thing, ...], ground: str) -> tuple[str, ...]:
    thing, number = things[0], COUNTS[len(things)][0]
    plural = thing.shape + ("es" if thing.shape.endswith("ss") else "s")
    return (
        f"{number} {thing.colour} {plural}",
        f"{number} {thing.colour} {plural}, {ground} background",
        f"there are {number} {thing.colour} {plural}",
        f"{number} {thing.colour} {plural} on a {ground} background",
        f"{thing.colour} {plural} on {ground}",
    )


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _full_wording(scene: Scene) -> int:
    return draws.below(draws.key(scene.address, "prompt"), _FULL[scene.kind])


def _prompt(kind: PromptKind, number: int, seed: int) -> tuple[str, Scene]:
    address = draws.key(seed, "mini prompt", kind, number)
    match kind:
        case "seen" | "held_out":
            pairs = TAUGHT if kind == "seen" else HELD_OUT
            shape, colour = pairs[number % len(pairs)]
            position = tuple(CENTRES)[(number + number // len(pairs)) % len(CENTRES)]
            drawn = _alone(address, shape, colour, position=position)
        case "relations":
            drawn = _related(address)
        case "counts":
            drawn = _several(address)
    return caption(drawn, _full_wording(drawn)), drawn


def _single(address: int, pairs: Sequence[tuple[str, str]]) -> Scene:
    shape, colour = _choose(pairs, address, "pair")
    return _alone(address, shape, colour, position=_choose(tuple(CENTRES), address, "position"))


def _alone(address: int, shape: str, colour: str, *, position: Position, size: Size | None = None) -> Scene:
    drawn: Size = _choose(("small", "big"), address, "size")
    ground = _choose(backgrounds((colour,)), address, "background")
    return Scene("single", (Thing(shape, colour, size or drawn, position),), ground, address)


def _related(address: int) -> Scene:
    relation: Relation = _choose(tuple(RELATIONS), address, "relation")
    first_pair = _choose(TAUGHT, address, "pair")
    fitting = [pair for pair in TAUGHT if pair != first_pair and backgrounds((first_pair[1], pair[1]))]
    second_pair = _choose(fitting, address, "second pair")
    ground = _choose(backgrounds((first_pair[1], second_pair[1])), address, "background")
    things = tuple(
        Thing(*pair, _choose(("small", "medium"), address, "size", number), position)
        for number, (pair, position) in enumerate(zip((first_pair, second_pair), RELATIONS[relation][:2], strict=True))
    )
    return Scene("relation", things, ground, address, relation)


def _several(address: int) -> Scene:
    shape, colour = _choose(TAUGHT, address, "pair")
    _, arrangements = COUNTS[_choose(tuple(COUNTS), address, "number")]
    size: Size = _choose(("small", "medium"), address, "size")
    things = tuple(Thing(shape, colour, size, place) for place in _choose(arrangements, address, "arrangement"))
    return Scene("count", things, _choose(backgrounds((colour,)), address, "background"), address)


def _share(address: int) -> Kind:
    rest = draws.uniform(draws.key(address, "kind"))
    for kind, share in SHARES.items():
        if rest < share:
            return kind
        rest -= share
    return "single"


def _choose(options: Sequence[T], address: int, purpose: str, *where: int) -> T:
    return options[draws.below(draws.key(address, purpose, *where), len(options))]


def _between(address: int, purpose: str, *where: int) -> float:
    """A number in [−1, 1)."""
    return 2 * draws.uniform(draws.key(address, purpose, *where)) - 1


def _on_star(corner: int) -> tuple[float, float]:
    """Corner 0 … 9 of a five-pointed star in the unit circle, the even ones outside, corner 0 on top."""
    radius = 1.05 if corner % 2 == 0 else 0.46
    angle = math.pi * corner / 5
    return radius * math.sin(angle), -radius * math.cos(angle)
