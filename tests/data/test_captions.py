"""Which caption a visit is trained with."""

from __future__ import annotations

from collections import Counter

from mezzotint import draws
from mezzotint.data.captions import choose

KEY = draws.text_key("a/picture.png")


def test_one_caption_is_taken_as_it_is() -> None:
    assert choose(("a red house",), seed=1, epoch=0, key_hash=KEY, visit=0, dropout=0.0) == "a red house"


def test_no_caption_is_the_empty_one() -> None:
    assert choose((), seed=1, epoch=0, key_hash=KEY, visit=0, dropout=0.0) == ""


def test_every_caption_is_chosen_about_equally_often() -> None:
    seen = Counter(choose("abc", seed=1, epoch=e, key_hash=KEY, visit=0, dropout=0.0) for e in range(3000))
    assert set(seen) == set("abc")
    assert all(900 < count < 1100 for count in seen.values())


def test_dropout_has_its_share_and_leaves_the_choice_alone() -> None:
    kept = [choose("abc", seed=1, epoch=e, key_hash=KEY, visit=0, dropout=0.0) for e in range(4000)]
    dropped = [choose("abc", seed=1, epoch=e, key_hash=KEY, visit=0, dropout=0.25) for e in range(4000)]
    assert 880 < dropped.count("") < 1120
    assert all(now in ("", before) for before, now in zip(kept, dropped, strict=True))


def test_dropout_of_one_drops_all() -> None:
    assert {choose("ab", seed=1, epoch=e, key_hash=KEY, visit=0, dropout=1.0) for e in range(50)} == {""}


def test_choice_depends_on_its_address_alone() -> None:
    address = {"seed": 3, "epoch": 5, "key_hash": KEY, "visit": 1}
    first = choose("abcdefgh", **address, dropout=0.0)
    assert choose("abcdefgh", **address, dropout=0.0) == first
    others = {choose("abcdefgh", **{**address, name: 7 + i}, dropout=0.0) for i in range(20) for name in address}
    assert len(others) > 4
