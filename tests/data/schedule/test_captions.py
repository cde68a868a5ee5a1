"""Choice and changes of the caption of a visit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from mezzotint import draws
from mezzotint.data.files.tags import Tags, add_around, resolve_wildcards
from mezzotint.data.schedule.captions import (
    Changes,
    apply_changes,
    cached_shuffle_key,
    choose,
    is_dropped_in,
    shuffle_tags,
    without_changes,
)
from mezzotint.data.schedule.plan import Visit
from mezzotint.stages import Sample

KEY = draws.text_key("a/picture.png")


def visit(epoch: int) -> Visit:
    return Visit(0, KEY, seed=1, epoch=epoch, number=0)


def test_single_caption_is_unchanged() -> None:
    assert choose(("a red house",), visit(0), dropout=0.0) == "a red house"


def test_missing_caption_is_empty() -> None:
    assert choose((), visit(0), dropout=0.0) == ""


def test_captions_are_chosen_uniformly() -> None:
    seen = Counter(choose("abc", visit(e), dropout=0.0) for e in range(3000))
    assert set(seen) == set("abc")
    assert all(900 < count < 1100 for count in seen.values())


def test_dropout_has_its_rate_and_does_not_change_the_choice() -> None:
    kept = [choose("abc", visit(e), dropout=0.0) for e in range(4000)]
    dropped = [choose("abc", visit(e), dropout=0.25) for e in range(4000)]
    assert 880 < dropped.count("") < 1120
    assert all(now in ("", before) for before, now in zip(kept, dropped, strict=True))


def test_dropout_of_one_drops_all() -> None:
    assert {choose("ab", visit(e), dropout=1.0) for e in range(50)} == {""}


def test_choice_depends_only_on_its_address() -> None:
    address = Visit(0, KEY, seed=3, epoch=5, number=1)
    first = choose("abcdefgh", address, dropout=0.0)
    assert choose("abcdefgh", replace(address, row=9), dropout=0.0) == first
    names = ("seed", "epoch", "key_hash", "number")
    others = {choose("abcdefgh", replace(address, **{name: 7 + i}), dropout=0.0) for i in range(20) for name in names}
    assert len(others) > 4


# --- the order of tags ------------------------------------------------------------------------------------------------


def orders(tags: Tags, count: int = 2000, **how: int) -> list[list[str]]:
    return [shuffle_tags(tags, address=draws.key(1, "tags", n), **how).split(", ") for n in range(count)]


def test_plain_caption_is_split_at_commas() -> None:
    tags = Tags.of(" a cat ,black,, asleep\non a chair , ")
    assert (tags.main, tags.tags) == ("a cat", ("black", "", "asleep\non a chair", ""))
    assert tags.text == "a cat, black, , asleep\non a chair, "
    assert Tags.of("no tags").tags == ()


def test_orders_of_tags_are_uniform() -> None:
    counts = Counter(tuple(order) for order in orders(Tags.of("main, a, b, c"), 6000))
    assert {order[0] for order in counts} == {"main"}
    assert len(counts) == 6
    assert all(850 < count < 1150 for count in counts.values())


def test_kept_tags_stay_in_place_and_others_are_shuffled() -> None:
    seen_orders = {tuple(order) for order in orders(Tags.of("main, a, b, c, d"), keep=2)}
    assert {order[:3] for order in seen_orders} == {("main", "a", "b")}
    assert {order[3:] for order in seen_orders} == {("c", "d"), ("d", "c")}
    assert shuffle_tags(Tags.of("main, a"), address=5, keep=9) == "main, a"


def test_heavier_tags_come_earlier_and_zero_weight_tags_last() -> None:
    tags = Tags("main", ("a", "b", "c"), (3.0, 1.0, 0.0))
    drawn_orders = orders(tags, 4000)
    assert {order[3] for order in drawn_orders} == {"c"}
    share = sum(order[1] == "a" for order in drawn_orders) / 4000
    assert 0.72 < share < 0.78


def test_weighted_tags_stay_within_the_length_limit() -> None:
    tags = Tags("main", ("aa", "bb", "cc", "dd"), (4.0, 3.0, 2.0, 1.0), limit=12)
    assert {len(", ".join(order)) for order in orders(tags)} == {12}
    longer = Tags(tags.main, tags.tags, tags.weights, limit=13)
    assert orders(longer, 50) == orders(tags, 50)
    alike = Tags(tags.main, tags.tags, (1.0,) * 4, limit=12)
    assert {len(order) for order in orders(alike)} == {5}  # the limit applies to weighted tags only
    assert shuffle_tags(Tags("a long main text", ("x", "y"), (1.0, 2.0), limit=4), address=1) == "a long main text"


def test_caption_without_main_text_is_its_tags() -> None:
    tags = Tags("", ("a", "b"), (1.0, 2.0), limit=4)
    assert tags.text == "a, b"
    assert {", ".join(order) for order in orders(tags)} == {"a, b", "b, a"}
    assert {len(order) for order in orders(Tags("", ("a", "b"), (1.0, 2.0), limit=3))} == {1}


def test_tags_round_trip_through_their_column() -> None:
    tags = Tags("a, b", ("naïve\n", '"', "\udcff"), (1.0, 0.5, 2.0), 99)
    assert Tags.decoded(tags.encoded()) == tags
    assert not tags.is_plain
    assert Tags.of("a, b").is_plain
    assert not Tags("a", ("b, c",), (1.0,)).is_plain


def test_cached_orders_depend_on_sample_and_number() -> None:
    assert len({cached_shuffle_key(key, number) for key in (1, 2) for number in range(3)}) == 6


def test_wildcards_match_kohya() -> None:
    def last(text: str) -> str:
        return resolve_wildcards(text, lambda number, count: count - 1)

    assert last("{a|b} {c} {d|e|}") == "b c "
    assert last("{{a|b}} {} } {") == "{a|b} {} } {"
    assert last("{a|{b} x") == "{b x"
    assert resolve_wildcards("{a|b} {a|b|c}", lambda number, count: number) == "a b"


def test_weighted_tags_get_prefix_wildcards_and_dropout() -> None:
    tags = Tags("a {red|blue} cat", ("{x|y}", "kept", "rare"), (3.0, 2.0, 1.0))
    sample = Sample("k", Path("k.png"), (tags.text,), overrides=(("flip", "0.5"), ("tags", tags.encoded())))
    with_prefix = add_around(sample, "sks", "")
    assert with_prefix.captions == ("sks a {red|blue} cat, {x|y}, kept, rare",)
    assert with_prefix.overrides[0] == ("flip", "0.5")
    line = with_prefix.overrides[1][1]
    every = Changes(wildcards=True, tag_dropout=0.5, keep=2)
    texts = {apply_changes("", line, every, address=draws.key(n, "x")) for n in range(90)}
    heads = [f"sks a {colour} cat, {tag}, kept" for colour in ("red", "blue") for tag in "xy"]
    assert texts == {head + end for head in heads for end in ("", ", rare")}
    shuffle = Changes(shuffle=True)
    plain = {apply_changes("", tags.encoded(), shuffle, address=draws.key(n, "x")) for n in range(60)}
    assert plain == {shuffle_tags(tags, address=draws.key(n, "x")) for n in range(60)}


# --- separators -------------------------------------------------------------------------------------------------------


def variants(caption: str, changes: Changes, count: int = 400) -> set[str]:
    return {apply_changes(caption, "", changes, address=draws.key(1, "tags", n)) for n in range(count)}


def test_parts_before_and_after_the_keep_separator_stay() -> None:
    changes = Changes(shuffle=True, keep=5, keep_separator="|||")
    assert variants("1girl, sks ||| a, b, c ||| best, last", changes) == {
        f"1girl, sks, {', '.join(order)}, best, last" for order in permutations("abc")
    }
    assert variants("||| a, b", changes) == {"a, b", "b, a"}
    assert variants("1girl ||| a", replace(changes, shuffle=False, tag_dropout=1.0)) == {"1girl"}


def test_caption_without_the_keep_separator_uses_the_number() -> None:
    changes = Changes(shuffle=True, keep=0, keep_separator="|||")
    assert variants("one, a, b", changes) == {"one, a, b", "one, b, a"}
    assert variants("one, a, b", replace(changes, keep=-1)) == {
        ", ".join(order) for order in permutations(["one", "a", "b"])
    }
    assert variants("one, a", Changes(tag_dropout=1.0, keep=-1)) == {""}


def test_tags_joined_by_the_second_separator_move_together() -> None:
    changes = Changes(shuffle=True, keep=-1, second_separator=";;;")
    assert variants("red hat;;; gold band, a", changes) == {"red hat, gold band, a", "a, red hat, gold band"}


def test_separators_become_commas_in_held_out_captions_and_stay_without_changes() -> None:
    caption, both = "x ||| a;;;b ||| y", Changes(shuffle=True, keep_separator="|||", second_separator=";;;")
    assert without_changes(caption, both) == "x, a,b, y"
    assert without_changes(caption, replace(both, shuffle=False)) == caption
    assert variants(caption, replace(both, shuffle=False)) == {caption}


def test_every_third_epoch_is_without_captions() -> None:
    assert [is_dropped_in(epoch, 3) for epoch in range(7)] == [False, False, True, False, False, True, False]
    assert not any(is_dropped_in(epoch, 0) for epoch in range(5))
