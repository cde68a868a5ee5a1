"""The doctor's report as one HTML page: pictures are in it, small, and nothing is asked of any network."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape

from mezzotint.data.findings.finding import Example, Finding
from mezzotint.errors import MezzotintError, visible
from mezzotint.tasks.doctor._looking import ExaminedData
from mezzotint.tasks.doctor._report import Report, closing

_SHOWN = 24
"""Examples of a finding; the document of `--json` has them all."""

_SIDE = 192  # pixels; they are shown at half of it on fine screens
_WORDS = {"mend": "to mend", "look": "to look at", "know": "to know"}
_STYLE = """
:root { color-scheme: light dark; --paper: #faf9f6; --panel: #fff; --ink: #1d1f22; --quiet: #5d6168; --line: #e2dfd8;
  --mend: #ad2323; --look: #8a5200; --know: #1f5f8b; --well: #1c6b3c; --soft: #f1efe9; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --panel: #1c1f23; --ink: #e8e6e1; --quiet: #a3a8b0;
  --line: #32363c; --mend: #ff8a80; --look: #e8b25c; --know: #7db9e2; --well: #7ccf9a; --soft: #24282d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(0.8rem, 3vw, 3rem) 4rem; max-width: 1500px; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 0.3rem; }
h2 { font-size: 1.08rem; line-height: 1.35; margin: 0; font-weight: 600; overflow-wrap: anywhere; }
p { margin: 0.3rem 0; max-width: 80ch; overflow-wrap: anywhere; }
.quiet, dt, figcaption { color: var(--quiet); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; margin: 1rem 0; }
dd { margin: 0; overflow-wrap: anywhere; }
nav { display: flex; flex-wrap: wrap; gap: 0.4rem; margin: 1rem 0 1.5rem; }
nav a { border: 1px solid var(--line); border-radius: 999px; padding: 0.1rem 0.7rem; text-decoration: none;
  color: inherit; background: var(--panel); }
nav a::before { content: "● "; }
.mend { --own: var(--mend); } .look { --own: var(--look); } .know { --own: var(--know); }
.well { --own: var(--well); }
nav a::before, .status { color: var(--own); }
.status { font-weight: 650; }
section { background: var(--panel); border: 1px solid var(--line); border-left: 4px solid var(--own);
  border-radius: 8px; padding: 0.9rem 1.1rem; margin: 0 0 1rem; }
.advice::before { content: "→ "; color: var(--own); font-weight: 650; }
.pictures { display: flex; flex-wrap: wrap; gap: 0.8rem; margin-top: 0.7rem; }
figure { margin: 0; background: var(--soft); border-radius: 6px; padding: 0.5rem; max-width: 100%; }
figure div { display: flex; flex-wrap: wrap; gap: 0.3rem; align-items: center; justify-content: center; }
img { display: block; max-width: 140px; max-height: 140px; border-radius: 3px; }
figcaption { font-size: 0.8rem; line-height: 1.35; margin-top: 0.35rem; overflow-wrap: anywhere; max-width: 290px;
  contain: inline-size; }
ul { margin: 0.6rem 0 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin-top: 0.6rem; max-height: 26rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.2rem 1.2rem 0.2rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { color: var(--quiet); font-weight: 500; position: sticky; top: 0; background: var(--panel); }
td { text-align: right; }
tbody th { font-weight: 500; }
.bar { min-width: 9rem; padding-right: 0; }
.bar i { display: block; height: 0.6rem; background: var(--know); border-radius: 2px; opacity: 0.75; }
"""


def html(report: Report, looked: ExaminedData | None) -> str:
    """The whole page. looked: whose pictures are shown, None for a machine."""

    @cache
    def picture(sample: tuple[str, int]) -> str:
        return _picture(looked, sample) if looked is not None else ""

    title = "Data" if looked is not None else "This machine"
    about = "".join(f"<dt>{_text(name)}</dt><dd>{_text(words)}</dd>" for name, words in report.about)
    links = "".join(
        f'<a class="{one.status}" href="#{one.name}-{number}">{_text(one.name)} ({one.count:,})</a>'
        for number, one in enumerate(report.findings)
    )
    sections = []
    for number, one in enumerate(report.findings):
        examples = "".join(_examples(one.examples[:_SHOWN], picture))
        more = len(one.examples) - _SHOWN
        rest = f'<p class="quiet">and {more:,} more, see --json</p>' if more > 0 else ""
        sections.append(
            f'<section class="{one.status}" id="{one.name}-{number}"><h2>{_text(one.sentence)}</h2>'
            f'<p class="quiet"><span class="status">{_WORDS[one.status]}</span> · {_text(one.name)}</p>'
            f'<p class="advice">{_text(one.advice)}</p>{examples}{rest}{_table(one)}</section>'
        )
    words = closing(report).partition(": ")[2]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{title} · Mezzotint's doctor</title><style>{_STYLE}</style></head>"
        f'<body><h1>{title}</h1><p class="{report.status}"><span class="status">{report.status}</span> · {words}</p>'
        f'<dl>{about}</dl><nav aria-label="Findings">{links}</nav><main>{"".join(sections)}</main></body></html>\n'
    )


def _text(words: str) -> str:
    return escape(visible(words))


def _examples(examples: Sequence[Example], picture: Callable[[tuple[str, int]], str]) -> Iterator[str]:
    shown = [one for one in examples if one.samples]
    if shown:
        figures = (
            f"<figure><div>{''.join(map(picture, one.samples))}</div><figcaption>{_text(one.text)}</figcaption>"
            "</figure>"
            for one in shown
        )
        yield f'<div class="pictures">{"".join(figures)}</div>'
    if len(shown) < len(examples):
        yield f"<ul>{''.join(f'<li>{_text(one.text)}</li>' for one in examples if not one.samples)}</ul>"


def _picture(looked: ExaminedData, sample: tuple[str, int]) -> str:
    try:
        image = looked.image(sample, _SIDE)
    except (MezzotintError, OSError):
        return ""
    content = io.BytesIO()
    image.save(content, "WEBP", quality=75)
    data = base64.b64encode(content.getvalue()).decode("ascii")
    name = _text(looked.name(sample))
    size = f'width="{image.width}" height="{image.height}"'
    return f'<img alt="{name}" title="{name}" {size} src="data:image/webp;base64,{data}">'


def _table(finding: Finding) -> str:
    """The table of a finding; what its second column counts is drawn as bars as well."""
    if not finding.table:
        return ""
    head, *rows = finding.table
    counts = [int(text) if (text := row[1].replace(",", "")).isdecimal() else 0 for row in rows]
    most = max(counts, default=0)
    columns = "".join(f'<th scope="col">{_text(name)}</th>' for name in head) + "<th></th>" * bool(most)
    lines = []
    for row, count in zip(rows, counts, strict=True):
        cells = "".join(f"<td>{_text(cell)}</td>" for cell in row[1:])
        bar = f'<td class="bar"><i style="width: {100 * count / most:.1f}%"></i></td>' if most else ""
        lines.append(f'<tr><th scope="row">{_text(row[0])}</th>{cells}{bar}</tr>')
    name = escape(finding.name)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{name}: numbers"><table><thead><tr>{columns}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
