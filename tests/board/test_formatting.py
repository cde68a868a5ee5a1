"""Times on the page: written in UTC, converted to local time by a script."""

from __future__ import annotations

from mezzotint.board.formatting import format_moment, mark_moments


def test_time_is_marked_up_in_utc() -> None:
    assert format_moment("2026-03-01T10:00:07Z") == '<time datetime="2026-03-01T10:00:07Z">2026-03-01 10:00 UTC</time>'
    assert format_moment(1772359207.6) == format_moment("2026-03-01T10:00:07Z")
    assert ">2026-03-01 10:00:07 UTC<" in format_moment("2026-03-01T10:00:07Z", in_seconds=True)
    assert format_moment(0.0) == format_moment("") == ""
    assert format_moment("<b>") == "&lt;b&gt;"


def test_times_in_a_text_are_marked_up_and_the_rest_is_escaped() -> None:
    one = '<time datetime="2026-03-01T10:00:07Z">2026-03-01T10:00:07Z</time>'
    assert mark_moments("2026-03-01T10:00:07Z <b>\n2026-03-01T10:00:07Z") == f"{one} &lt;b&gt;\n{one}"
    assert mark_moments("none & nothing") == "none &amp; nothing"
