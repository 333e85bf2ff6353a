"""A study as terminal text and as one HTML page: verdicts first, then pictures and tables."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labelzoo.report import (
    DASH,
    Column,
    Picture,
    as_table,
    digits,
    fixed,
    html_figures,
    html_page,
    html_table,
    word,
    wrap,
)
from labelzoo.study.analysis import HEADLINE, PARTS
from labelzoo.study.pictures import WHO


def points(value: Any) -> str:
    """Write a share as signed points."""
    return DASH if value is None else f"{100 * float(value):+.2f}"


def span(value: Any) -> str:
    """Write an interval of shares in points."""
    return DASH if value is None else f"{100 * value[0]:+.2f} to {100 * value[1]:+.2f}"


def percent(value: Any) -> str:
    """Write a share in per cent."""
    return DASH if value is None else f"{100 * float(value):.0f} %"


def verdict_word(sentence: Any) -> str:
    """Return the word or two that matter in a verdict."""
    for words in ("beats", "LOSES", "no difference", "one seed"):
        if f" {words}" in str(sentence):
            return words
    return word(sentence)


HEADLINE_COLUMNS = (
    Column("acquire", "function", word),
    Column("difference", "points", points),
    Column("interval", "interval", span),
    Column("holm", "p (Holm)", digits(2)),
    Column("num_seeds", "seeds", word),
    Column("rows_saved", "rows saved", fixed(0)),
    Column("share_of_oracle", "of oracle", percent),
    Column("seconds", "s a batch", digits(2)),
)
TEXT_COLUMNS = (HEADLINE_COLUMNS[0], Column("verdict", "verdict", verdict_word), *HEADLINE_COLUMNS[1:])
OTHER_COLUMNS = (
    Column("acquire", "function", word),
    Column("evaluator", "judged by", word),
    Column("part", "rows", word),
    Column("metric", "metric", word),
    Column("difference", "difference", fixed(4)),
    Column("low", "from", fixed(4)),
    Column("high", "to", fixed(4)),
    Column("p_value", "p", digits(2)),
    Column("holm", "p (Holm)", digits(2)),
    Column("num_seeds", "seeds", word),
)
LEGEND = (
    "Points: hundredths of the mean of P@1, P@2 and P@3, mean over the learning curve, less that of random, "
    "on rows scored only (E). Rows saved: labelled rows that random needs for its last level, less those the "
    "function needs for it; a dash where it never gets there or no difference is shown. Of oracle: share of "
    "the gain of the oracle reference. s a batch: median CPU time to choose one."
)


def headline_rows(payload: Mapping[str, Any], evaluator: str) -> list[dict[str, Any]]:
    """Return the comparisons of the headline, best first, each with the time to choose."""
    seconds = {row["acquire"]: row["seconds"] for row in payload["choosing"]}
    mine = [
        {**row, "seconds": seconds[row["acquire"]]}
        for row in payload["comparison"]
        if (row["evaluator"], row["part"], row["metric"]) == (evaluator, "E", HEADLINE)
    ]
    return sorted(mine, key=lambda row: -row["difference"])


def title_of(payload: Mapping[str, Any]) -> str:
    """Return the title of a study."""
    plan = payload["plan"]
    return f"Active learning on {Path(plan['data']).name}: {plan['learner']} by {plan['engine']}"


def setting_of(payload: Mapping[str, Any]) -> str:
    """Return what was done, in a sentence or two."""
    plan, data = payload["plan"], payload["data"]
    share = f", {plan['test_fraction']:.0%} for deployment" if plan["split"] != "published" else ""
    return (
        f"{data['rows']} rows, {data['features']} features, {data['labels']} labels. A pool of "
        f"{data['pool_rows']} rows ({plan['split']} split{share}); {plan['start']} rows labelled at the "
        f"start, then {plan['rounds']} rounds of {plan['batch']} rows, {len(plan['seeds'])} seeds; targets: "
        f"{plan['targets']} ({data['target_rows']} rows T); {data['scored_rows']} other rows E are scored."
    )


def render_text(payload: Mapping[str, Any]) -> str:
    """Return the study as terminal text."""
    parts = [title_of(payload), wrap(payload["summary"])]
    for evaluator in payload["plan"]["evaluators"]:
        rows = headline_rows(payload, evaluator)
        if rows:
            parts.append(f"Judged by {WHO[evaluator]}, against random:\n" + as_table(rows, TEXT_COLUMNS))
    few = [note for note in payload["notes"] if "Add seeds" in note]
    parts += [wrap(note) for note in few]
    parts += [wrap(f"Not run: {line}") for line in left_out(payload["not_run"])]
    parts += [wrap(f"Failed: {line}") for line in left_out(payload["failed"])]
    if payload["comparison"]:
        parts.append(wrap(LEGEND))
    parts.append(f"Report: {payload['report']}")
    return "\n\n".join(parts)


def left_out(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line for each function and reason, with its seeds."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        seeds.setdefault((row["acquire"], row["reason"]), []).append(row["seed"])
    return [
        f"{acquire}, seed{'s' if len(which) > 1 else ''} {', '.join(map(str, which))}: {reason}"
        for (acquire, reason), which in seeds.items()
    ]


def render_html(payload: Mapping[str, Any], pictures: Sequence[Picture]) -> str:
    """Return the report; every name that comes from data or files is escaped."""
    title = html.escape(title_of(payload))
    body = [
        f"<h1>{title}</h1>",
        f"<p><b>{html.escape(payload['summary'])}</b></p>",
        f"<p>{html.escape(setting_of(payload))}</p>",
        *_verdicts(payload),
        *html_figures(pictures),
        *_tables(payload),
        *_left_out(payload),
        "<h2>How to read this</h2>",
        *(f'<p class="note">{html.escape(note)}</p>' for note in payload["notes"]),
        *_reproduce(payload),
    ]
    return html_page(title, body)


def _verdicts(payload: Mapping[str, Any]) -> list[str]:
    out = []
    for evaluator in payload["plan"]["evaluators"]:
        rows = headline_rows(payload, evaluator)
        if rows:
            out.append(f"<h2>Judged by {WHO[evaluator]}</h2>")
            out.append(f'<ul class="verdicts">{"".join(map(_verdict, rows))}</ul>')
            out.append(html_table(rows, [c for c in HEADLINE_COLUMNS if _used(c, rows)]))
    return [*out, f'<p class="legend">{html.escape(LEGEND)}</p>'] if out else out


def _used(column: Column, rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row.get(column.key) is not None for row in rows)


def _verdict(row: Mapping[str, Any]) -> str:
    lost = row["interval"] is not None and row["interval"][1] < 0
    return f"<li{' class="refuted"' if lost else ''}>{html.escape(row['verdict'])}</li>"


def _tables(payload: Mapping[str, Any]) -> list[str]:
    rows = []
    for row in payload["comparison"]:
        low, high = row["interval"] or (None, None)
        rows.append({**row, "low": low, "high": high})
    if not rows:
        return []
    parts = "; ".join(f"{part}: {words}" for part, words in PARTS.items())
    return [
        "<h2>All metrics</h2>",
        f"<details><summary>{len(rows)} differences of areas to random ({html.escape(parts)})</summary>",
        html_table(rows, OTHER_COLUMNS),
        "</details>",
    ]


def _left_out(payload: Mapping[str, Any]) -> list[str]:
    out = []
    for key, heading in (("not_run", "Not run"), ("failed", "Failed")):
        if payload[key]:
            lines = "".join(f"<li>{html.escape(line)}</li>" for line in left_out(payload[key]))
            out += [f"<h2>{heading}</h2>", f"<ul>{lines}</ul>"]
    return out


def _reproduce(payload: Mapping[str, Any]) -> list[str]:
    versions = ", ".join(f"{name} {number}" for name, number in payload["versions"].items())
    line = f"Data sha256 {payload['plan']['data_hash'][:16]}…. Versions: {versions}."
    return [
        "<h2>How to reproduce</h2>",
        f"<pre>{html.escape(payload['command'])}</pre>",
        f'<p class="note">{html.escape(line)} The number of processes changes nothing.</p>',
    ]
