"""Rows of sharded tensors: joined, sliced, and compared with the manifest."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mezzotint.training.checkpoints import sharding
from mezzotint.training.checkpoints.sharding import Share

WHOLE = torch.arange(15).reshape(5, 3)
SHARES = [Share((5, 3), 0, 2), Share((5, 3), 2, 5)]


def tables() -> list[dict[str, Any]]:
    held = [share.of(WHOLE) for share in SHARES]
    return [
        {"w/a/x": sharding.table_entry(rows, f"{place}.safetensors", share)}
        for place, (rows, share) in enumerate(zip(held, SHARES, strict=True))
    ]


def shapes(table: dict[str, Any]) -> dict[str, Any]:
    return {
        piece["file"]: {name: {"shape": [piece["stop"] - piece["start"], 3], "dtype": entry["dtype"]}}
        for name, entry in table.items()
        for piece in entry["rows"]
    }


@pytest.mark.parametrize("rows", [None, Share((5, 3), 1, 4), Share((5, 3), 5, 5)])
def test_requested_rows_are_read_from_several_files(rows: Share | None) -> None:
    tensors: dict[str, torch.Tensor] = {}
    for share in SHARES:
        sharding.copy_rows(tensors, "w/a/x", share.of(WHOLE), (5, 3), share.start, rows)
    assert torch.equal(tensors["w/a/x"], WHOLE if rows is None else rows.of(WHOLE))


def test_table_of_all_shards_is_ordered_and_matches_files() -> None:
    table = sharding.join_tables(tables()[::-1])
    assert [piece["start"] for piece in table["w/a/x"]["rows"]] == [0, 2]
    assert sharding.damage(table, shapes(table)) is None


def test_gaps_wrong_rows_and_unknown_tensors_are_damage() -> None:
    table = sharding.join_tables(tables())
    files = shapes(table)
    assert sharding.damage(table, files | {"2.safetensors": {"w/a/y": {}}}) == sharding.OTHER_TENSORS
    assert sharding.damage(None, files) == sharding.OTHER_TENSORS
    table["w/a/x"]["rows"].pop()
    assert "is incomplete" in (sharding.damage(table, shapes(table)) or "")
    table["w/a/x"]["rows"][0]["start"] = 1
    assert "are not those" in (sharding.damage(table, files) or "")


def test_optimizer_states_are_sharded_like_their_parameter() -> None:
    shares = {"a/x": SHARES[1]}
    assert sharding.share_of("opt.mean/a/x", shares) == SHARES[1]
    assert sharding.share_of("opt.applied", shares) is None
    assert sharding.full_shape("w/a/x", SHARES[1].of(WHOLE), shares) == (5, 3)
    assert torch.equal(sharding.select_rows({"a/x": WHOLE, "b": WHOLE}, shares)["a/x"], WHOLE[2:])


def test_parts_have_similar_size_and_cover_everything_once() -> None:
    sizes = {f"w/{n}": n * n for n in range(40)}
    parts = sharding.divide(sizes, 3)
    assert sorted(name for part in parts for name in part) == sorted(sizes)
    loads = [sum(sizes[name] for name in part) for part in parts]
    assert max(loads) - min(loads) <= max(sizes.values()) // 10
    assert sharding.divide(dict(reversed(sizes.items())), 3) == parts, "whatever the order in which they are told"
    assert sharding.divide({"a": 1}, 3) == [{"a"}, set(), set()]
