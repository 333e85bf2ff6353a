"""A comparison as terminal text and as one HTML file that needs no network."""

import base64
import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from labelzoo.whole_file import whole_file

DASH = "–"
"""Shown where a number does not apply."""


class Picture(NamedTuple):
    """A rendered figure.

    Attributes
    ----------
    file : str
        Name of the PNG file.
    title, caption : str
        The caption says what to look for.
    png : bytes
    """

    file: str
    title: str
    caption: str
    png: bytes


class Column(NamedTuple):
    """A column of a table: the key in a row, its heading, and how a value is written."""

    key: str
    heading: str
    write: Callable[[Any], str]


def digits(count: int) -> Callable[[Any], str]:
    """Return a writer of numbers with `count` significant digits, without exponents below a million."""

    def write(value: Any) -> str:
        if value is None:
            return DASH
        value = float(value)
        if abs(value) >= 1e6:
            return f"{value:.{count}g}"
        rounded = float(f"{value:.{count}g}")
        places = 0 if rounded == 0 else max(0, count - 1 - int(f"{rounded:e}".partition("e")[2]))
        return f"{rounded:.{min(places, 6)}f}"

    return write


def fixed(places: int) -> Callable[[Any], str]:
    """Return a writer of numbers with so many decimal places."""
    return lambda value: DASH if value is None else f"{float(value):.{places}f}"


def word(value: Any) -> str:
    """Write a value as it is."""
    return DASH if value is None else str(value)


def verdict_word(sentence: Any) -> str:
    """Return the word or two that a verdict sentence opens with."""
    for opening in ("agrees", "refuted", "approximation", "no verdict", "no difference", "reference"):
        if str(sentence).startswith(opening):
            return opening
    return word(sentence)


ENGINE_COLUMNS = (
    Column("name", "engine", word),
    Column("verdict", "verdict", verdict_word),
    Column("kind", "kind", word),
    Column("seconds", "seconds", digits(3)),
    Column("compile_seconds", "compile", digits(3)),
    Column("ess_per_second", "ESS/s", digits(3)),
    Column("max_rhat", "R-hat", fixed(3)),
    Column("khat", "k-hat", fixed(2)),
    Column("max_difference", "|diff|", digits(2)),
    Column("upper", "upper", digits(2)),
    Column("max_z", "max z", fixed(1)),
    Column("log_score", "log score", fixed(2)),
    Column("log_score_marginals", "marginals", fixed(2)),
)

WHOLE_COLUMNS = (
    Column("name", "engine", word),
    Column("seconds", "seconds", digits(3)),
    Column("per_example_auc", "AUC in a row", fixed(3)),
    Column("macro_auc", "macro AUC", fixed(3)),
    Column("macro_auc_undefined", "labels without", word),
    Column("precision_at_1", "P@1", fixed(3)),
    Column("log_score", "log score", fixed(2)),
)

LEGEND = (
    "Seconds include compilation (compile). ESS/s: effective draws a second of the worst quantity, without "
    "compilation. |diff|: largest difference of means from the reference, in its posterior sds; upper: its "
    "95 % limit; max z: in Monte Carlo errors. k-hat: above 0.7 the approximation is too far off to be "
    "corrected by weights. Log score: nats a held-out row, labels jointly, beside the sum of their "
    "marginals; higher is better. A dash: does not apply, or chains that have not converged."
)

WHOLE_LEGEND = (
    "AUC in a row: how well the labels of one row are ranked. Macro AUC: how well the rows are ranked, "
    "averaged over labels; 'labels without' lack positives or negatives among the held-out rows and are left "
    "out. P@1: how often the most probable label is right. Log score: nats a row, sum over labels; higher is "
    "better."
)

TEXT_WIDTH = 100


def cells_of(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> list[list[str]]:
    """Return the written cells of each row."""
    return [[column.write(row.get(column.key)) for column in columns] for row in rows]


def as_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Return an aligned table for a terminal; columns without any value are left out."""
    used = [c for c in columns if any(row.get(c.key) is not None for row in rows)]
    grid = [[c.heading for c in used], *cells_of(rows, used)]
    widths = [max(len(line[j]) for line in grid) for j in range(len(used))]
    lines = []
    for first, *rest in grid:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def wrap(text: str) -> str:
    """Return a paragraph broken at `TEXT_WIDTH` columns; names are not broken."""
    return textwrap.fill(text, TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)


def render_text(payload: Mapping[str, Any]) -> str:
    """Return what the command prints."""
    parts = [wrap(payload["summary"]), as_table(payload["engines"], ENGINE_COLUMNS), wrap(LEGEND)]
    parts.append("\n".join(wrap(f"{row['name']}: {row['verdict']}") for row in payload["engines"]))
    if payload["whole"]:
        parts.append(wrap(payload["whole_summary"]) + "\n\n" + as_table(payload["whole"], WHOLE_COLUMNS))
        parts.append(wrap(WHOLE_LEGEND))
    if payload["topics"]:
        parts.append("\n".join([wrap(payload["topics_summary"]), *map(_topic_line, payload["topics"])]))
    if payload["next"]:
        lines = [_next_line(place, row) for place, row in enumerate(payload["next"], 1)]
        parts.append("\n".join([wrap(payload["next_summary"]), *lines]))
    parts += [wrap(f"Note: {note}") for note in payload["notes"]]
    limit = "" if payload["budget"] is None else f" of {payload['budget']:.0f} s"
    parts.append(f"Took {payload['seconds']:.0f} s{limit}. Report: {payload['report']}")
    return "\n\n".join(parts)


def _topic_line(topic: Mapping[str, Any]) -> str:
    share = "" if topic["weight"] is None else f"{topic['weight']:6.1%}  "
    return f"  {share}{', '.join(label['label'] for label in topic['probable'][:6])}"


def _next_line(place: int, row: Mapping[str, Any]) -> str:
    description = f"  {row['description']}" if row["description"] else ""
    return f"  {place}. {row['obs']}{description}  ({row['likely_labels']})"


STYLE = """
:root { color-scheme: light dark;
  --ink: #1c1c1c; --soft: #666; --paper: #fff; --line: #ddd; --tint: #f4f4f6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --soft: #a5a5a5; --paper: #16171a; --line: #3a3b40; --tint: #222328; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child, td.words, th.words { text-align: left; }
td.words { white-space: normal; min-width: 14rem; }
.topics { width: 100%; }
.note, figcaption, .legend { color: var(--soft); font-size: .875rem; }
figure { margin: 1.25rem 0; }
figure img { max-width: min(100%, 46rem); height: auto; display: block; background: #fff;
  border-radius: 6px; padding: 4px; }
figcaption { margin-top: .4rem; max-width: 44rem; }
pre { background: var(--tint); padding: .75rem; border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: .85rem; }
.verdicts { padding-left: 1.2rem; }
.refuted { color: #c0392b; font-weight: 600; }
.big { font-size: 1.25rem; line-height: 1; }
"""


def render_html(payload: Mapping[str, Any], pictures: Sequence[Picture]) -> str:
    """Return the report; every name that comes from data or files is escaped."""
    title = html.escape(payload["title"])
    body = [
        f"<h1>{title}</h1>",
        f"<p>{html.escape(payload['summary'])}</p>",
        _verdicts(payload["engines"]),
        *(f'<p class="note">Note: {html.escape(note)}</p>' for note in payload["notes"]),
        "<h2>Engines</h2>",
        html_table(payload["engines"], ENGINE_COLUMNS),
        f'<p class="legend">{html.escape(LEGEND)}</p>',
        *_whole(payload),
        *html_figures(pictures),
        *_topics(payload),
        *_next(payload),
        *_reproduce(payload),
    ]
    return html_page(title, body)


def html_page(title: str, body: Sequence[str]) -> str:
    """Return a whole page of escaped parts in the house's style; it needs no network."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def html_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> str:
    """Return an HTML table that scrolls sideways on a narrow screen."""
    head = "".join(f"<th>{html.escape(column.heading)}</th>" for column in columns)
    lines = []
    for cells in cells_of(rows, columns):
        lines.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return _scrolling("<table>", f"<tr>{head}</tr>", lines)


def _scrolling(opening: str, head: str, lines: Sequence[str]) -> str:
    body = "".join(lines)
    return f'<div class="scroll">{opening}<thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for row in rows:
        mark = ' class="refuted"' if verdict_word(row["verdict"]) == "refuted" else ""
        items.append(f"<li{mark}><b>{html.escape(row['name'])}</b>: {html.escape(row['verdict'])}</li>")
    return f'<ul class="verdicts">{"".join(items)}</ul>'


def _whole(payload: Mapping[str, Any]) -> list[str]:
    if not payload["whole"]:
        return []
    return [
        "<h2>Held-out rows</h2>",
        f"<p>{html.escape(payload['whole_summary'])}</p>",
        html_table(payload["whole"], WHOLE_COLUMNS),
        f'<p class="legend">{html.escape(WHOLE_LEGEND)}</p>',
    ]


def html_figures(pictures: Sequence[Picture]) -> list[str]:
    """Return the section of the pictures, each held in the page itself."""
    if not pictures:
        return []
    out = ["<h2>Pictures</h2>"]
    for picture in pictures:
        data = base64.b64encode(picture.png).decode("ascii")
        title, caption = html.escape(picture.title), html.escape(picture.caption)
        out.append(
            f'<figure><img alt="{title}" src="data:image/png;base64,{data}">'
            f"<figcaption><b>{title}.</b> {caption}</figcaption></figure>"
        )
    return out


def _topics(payload: Mapping[str, Any]) -> list[str]:
    if not payload["topics"]:
        return []
    drawn = any(topic["stability"] is not None for topic in payload["topics"])
    headings = ["share", "coherence", *(["stability"] if drawn else [])]
    lines = []
    for topic in payload["topics"]:
        share = DASH if topic["weight"] is None else f"{topic['weight']:.1%}"
        numbers = [share, fixed(2)(topic["coherence"])] + [fixed(2)(topic["stability"])] * drawn
        labels = ", ".join(f"{html.escape(x['label'])}&nbsp;{x['prob']:.2g}" for x in topic["probable"])
        name = f'<td class="words">{html.escape(topic["name"])}</td>'
        cells = "".join(f"<td>{number}</td>" for number in numbers)
        lines.append(f'<tr>{name}{cells}<td class="words">{labels}</td></tr>')
    heads = "".join(f"<th>{heading}</th>" for heading in headings)
    names = '<th class="words">topic, by its most distinctive labels</th>'
    head = f'<tr>{names}{heads}<th class="words">most probable labels</th></tr>'
    return [
        "<h2>Topics</h2>",
        f"<p>{html.escape(payload['topics_summary'])}</p>",
        _scrolling('<table class="topics">', head, lines),
    ]


def _next(payload: Mapping[str, Any]) -> list[str]:
    if not payload["next"]:
        return []
    lines = []
    for row in payload["next"]:
        words = (row["description"], row["likely_labels"], row["hidden_labels"])
        cells = "".join(f'<td class="words">{html.escape(text or DASH)}</td>' for text in words)
        name = html.escape(row["obs"])
        lines.append(f'<tr><td class="big">{name}</td><td>{row["gain"]:.3g}</td>{cells}</tr>')
    headings = ("name", "likely labels", "labels hidden from the engines")
    heads = "".join(f'<th class="words">{heading}</th>' for heading in headings)
    return [
        "<h2>What to label next</h2>",
        f"<p>{html.escape(payload['next_summary'])}</p>",
        _scrolling('<table class="topics">', f"<tr><th>row</th><th>gain</th>{heads}</tr>", lines),
    ]


def _reproduce(payload: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {number}" for name, number in payload["versions"].items())
    limit = "" if payload["budget"] is None else f" of the {payload['budget']:.0f} s allowed"
    lines = [
        f"Data: {payload['data']} (sha256 {payload['data_hash'][:16]}…), seed {payload['seed']}.",
        f"Versions: {versions}.",
        f"Took {payload['seconds']:.0f} s{limit}, on {payload['machine']}.",
        "Samplers stop when their time is up, so the number of draws depends on the machine.",
    ]
    if payload["budget"] is None:
        lines.pop()
    return [
        "<h2>How to reproduce</h2>",
        f"<pre>{html.escape(payload['command'])}</pre>",
        f'<p class="note">{html.escape(" ".join(lines))}</p>',
    ]


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file at once or not at all: under a temporary name, then renamed.

    Raises
    ------
    ValueError
        If the folder cannot be written to.
    """
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
    return path
