"""Report, figures, topics table and held-out scores, from hand-made results."""

import json
import re
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelzoo import figures
from labelzoo.data import LabelData
from labelzoo.held_out import BASELINE, baseline, label_frequencies, metrics_row, observed_cells, thin_rows
from labelzoo.inference.compare.verdict import moments
from labelzoo.query_table import best_sampler, symbol_name
from labelzoo.report import (
    ENGINE_COLUMNS,
    Picture,
    as_table,
    digits,
    render_html,
    render_text,
    verdict_word,
    write_bytes,
)
from labelzoo.topic_shares import explained_shares, has_topics
from labelzoo.topics import as_json, topic_table

NASTY = '<script>alert("x")</script>'


def topic_tree(topics: Any, embedding: Any = None, labels: tuple[str, ...] = ("a", "b", "c")) -> xr.DataTree:
    """Posterior of `topics` (chain, draw, topic, labels); rows 0 and 1 have labels (0, 1) and (2,)."""
    sites = {"topics": (("chain", "draw", "topic", "labels"), np.asarray(topics, float))}
    if embedding is not None:
        sites["embedding"] = (("chain", "draw", "obs", "topic"), np.asarray(embedding, float))
    observed = {"Y_indices": ("Y_nnz", np.array([0, 1, 2])), "Y_indptr": ("Y_ptr", np.array([0, 2, 3]))}
    coords = {"topic": np.arange(np.shape(topics)[2]), "labels": list(labels)}  # as the converter writes them
    groups = {"posterior": xr.Dataset(sites, coords), "observed_data": xr.Dataset(observed)}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {"model": "toy", "label_names": json.dumps(list(labels))}
    return tree


def make_payload(**changes: Any) -> dict[str, Any]:
    """Return a small payload with a hostile engine name."""
    engine = {
        "name": NASTY, "kind": "point", "seconds": 1.2345, "compile_seconds": 1.0, "ess_per_second": None,
        "max_rhat": None, "khat": None, "max_difference": 0.123, "upper": None, "max_z": None,
        "log_score": -3.14159, "log_score_marginals": -3.5, "verdict": "refuted: by a lot",
    }  # fmt: skip
    whole = {"name": BASELINE, "seconds": None, "per_example_auc": 0.9, "macro_auc": 0.5}
    topic = {
        "topic": 1, "name": NASTY, "weight": 0.5, "distance": 1.0, "effective_labels": 2.0, "coherence": None,
        "stability": 0.75, "probable": [{"label": NASTY, "prob": 0.25}], "distinctive": [],
    }  # fmt: skip
    query = {"obs": "🐝", "gain": 0.2, "description": "honeybee", "likely_labels": NASTY, "hidden_labels": ""}
    payload = {
        "title": f"toy on {NASTY}", "summary": f"About {NASTY}.", "engines": [engine], "whole": [whole],
        "whole_summary": "Whole.", "topics": [topic], "topics_summary": "Topics.", "next": [query],
        "next_summary": "Next.", "notes": [f"see {NASTY}"], "command": f"labelzoo compare {NASTY}",
        "versions": {"jax": "1"}, "machine": "a box", "data": "toy", "data_hash": "0" * 64, "seed": 3,
        "budget": 60.0, "seconds": 12.0, "report": "out/report.html",
    }  # fmt: skip
    return payload | changes


def test_html_escapes_every_name_and_needs_no_network() -> None:
    text = render_html(make_payload(), [Picture("a.png", NASTY, NASTY, b"\x89PNG")])
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 10
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text)
    assert "data:image/png;base64,iVBORw==" in text or "data:image/png;base64,iVBORw" in text
    assert 'name="viewport"' in text and "prefers-color-scheme: dark" in text


def test_report_opens_with_the_summary_and_the_verdicts() -> None:
    text = render_html(make_payload(summary="Two engines."), [])
    assert text.index("<h1>") < text.index("Two engines.") < text.index("by a lot") < text.index("<table")
    assert "Pictures" not in text


def test_sections_without_content_are_left_out() -> None:
    text = render_html(make_payload(whole=[], topics=[], next=[]), [])
    assert not any(heading in text for heading in ("Held-out rows", "<h2>Topics", "What to label next"))
    shown = render_text(make_payload(whole=[], topics=[], next=[], notes=[]))
    assert "Topics." not in shown and "Next." not in shown and "Whole." not in shown


def test_text_names_the_report_the_verdicts_and_the_time() -> None:
    text = render_text(make_payload())
    assert "Took 12 s of 60 s. Report: out/report.html" in text
    assert "refuted: by a lot" in text and "🐝  honeybee" in text and "50.0%" in text
    assert "of" not in render_text(make_payload(budget=None)).partition("Took 12 s")[2].partition(".")[0]


def test_text_table_is_aligned_and_drops_empty_columns() -> None:
    rows = [{"name": "gibbs", "seconds": 1.0}, {"name": "a longer name", "seconds": 123.4, "max_rhat": None}]
    lines = as_table(rows, ENGINE_COLUMNS).splitlines()
    assert lines[0].split() == ["engine", "seconds"]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "–"), (0, "0"), (0.0, "0"), (123.456, "123"), (1234.5, "1230"), (9.9951, "10.0"),
     (0.012345, "0.0123"),
     (-3.14159, "-3.14"), (2.5e7, "2.5e+07"), (1.23e-9, "0.000000")],
)  # fmt: skip
def test_digits(value: float | None, expected: str) -> None:
    assert digits(3)(value) == expected


def test_verdict_word() -> None:
    assert verdict_word("no verdict: reference not converged") == "no verdict"
    assert verdict_word("no difference from nuts seen, but") == "no difference"
    assert verdict_word("agrees with nuts: |difference| < 0.1") == "agrees"


def test_write_bytes_replaces_a_file_and_leaves_no_other(tmp_path: Any) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    write_bytes(target, b"new")
    assert target.read_bytes() == b"new" and [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    with pytest.raises(ValueError, match="cannot write"):
        write_bytes(tmp_path / "absent" / "a.txt", b"new")


def test_topics_are_ordered_by_what_they_explain() -> None:
    # Topic 1 alone explains labels 0 and 1 of row 0, topic 0 label 2 of row 1: shares 1/3 and 2/3.
    tree = topic_tree([[[[0, 0, 1], [0.7, 0.3, 0]]]], [[[[1.0, 1.0], [1.0, 1.0]]]])
    table = topic_table(tree, 2)
    assert list(table.index) == [1, 0]
    assert list(table["weight"]) == pytest.approx([2 / 3, 1 / 3])
    assert table["probable"].iloc[0] == [("a", 0.7), ("b", 0.3)]
    text = render_text(make_payload(topics=as_json(table)))
    assert "\n   66.7%  a, b\n   33.3%  c, a" in text


def test_the_topics_of_a_report_are_one_draw_and_say_how_stable() -> None:
    first, second = [0.9, 0.1, 0.0], [0.0, 0.1, 0.9]
    swapped = topic_tree([[[first, second], [second, [0.0, 0.9, 0.1]]]])
    table = topic_table(swapped, 2)
    assert [dict(one)["b"] for one in table["probable"]] == [0.1, 0.9]  # the last draw as it is, no mean
    page = render_html(make_payload(topics=as_json(table)), [])
    assert "<th>stability</th>" in page
    assert f"<td>{table['stability'].iloc[1]:.2f}</td>" in page
    only = render_html(make_payload(topics=as_json(topic_table(topic_tree([[[first, second]]]), 2))), [])
    assert "stability" not in only.partition("<h2>Topics</h2>")[2].partition("<h2>")[0]


def test_shares_split_a_positive_between_topics() -> None:
    topics = np.array([[0.2, 0.2, 0.6], [0.6, 0.2, 0.2]])
    embedding = np.array([[1.0, 2.0], [3.0, 1.0]])
    # Row 0: label 0 -> (.2, 1.2), label 1 -> (.2, .4); row 1: label 2 -> (1.8, .2).
    expected = (0.2 / 1.4 + 0.2 / 0.6 + 0.9) / 3
    shares = explained_shares(topics, embedding, topic_tree(topics[None, None]))
    assert shares == pytest.approx([expected, 1 - expected])


def test_topic_table_refuses_a_posterior_without_topics() -> None:
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"w": (("chain", "draw"), np.zeros((1, 1)))})})
    assert not has_topics(tree)
    with pytest.raises(ValueError, match="no site 'topics'"):
        topic_table(tree)


def test_label_frequencies_skip_unobserved_cells() -> None:
    Y = np.array([[1, np.nan, 0], [1, 1, 0], [0, np.nan, 0]])
    data = LabelData.from_arrays(np.zeros((3, 1)), Y)
    assert label_frequencies(data) == pytest.approx([2.5 / 4, 1.5 / 2, 0.5 / 4])
    row = metrics_row(baseline(data, data), data)
    assert row["macro_auc"] == 0.5 and row["macro_auc_undefined"] == 2
    truth, probs = observed_cells(baseline(data, data), data)
    assert truth.sum() == 3 and probs.size == 7
    assert thin_rows(data, max_cells=6).num_rows == 2 and thin_rows(data).num_rows == 3


def test_undefined_metrics_are_null() -> None:
    data = LabelData.from_arrays(np.zeros((2, 1)), np.zeros((2, 2)))
    assert metrics_row(np.full((2, 2), 0.5), data)["macro_auc"] is None


def test_reliability_bins_hold_equal_predicted_positives() -> None:
    rng = np.random.default_rng(5)
    probs = rng.beta(0.2, 2.0, 20_000)
    truth = rng.random(probs.size) < probs
    table = figures.reliability_bins(truth, probs, 8)
    mass = table["predicted"] * table["cells"]
    assert np.allclose(mass, probs.sum() / 8, atol=2.0)
    assert table["cells"].sum() == probs.size
    z = (table["share"] - table["predicted"]) / np.sqrt(table["predicted"] / table["cells"])
    assert np.abs(z).max() < 5, f"seed 5, z = {z.tolist()}"
    assert (table["low"] <= table["share"]).all() and (table["share"] <= table["high"]).all()


def test_reliability_bins_of_zeros_and_ones() -> None:
    table = figures.reliability_bins(np.array([0, 1]), np.array([0.5, 0.5]), 2)
    assert table["low"].min() == 0.0 and table["high"].max() == 1.0


@pytest.mark.filterwarnings("error")
def test_every_figure_renders_with_hostile_names() -> None:
    rng = np.random.default_rng(1)
    names = [f"rate[{i}]" for i in range(12)] + ["total$x^$"]
    summaries = {name: moments(rng.normal(size=(4, 50, 13))) for name in ("ref", "a $b$ 🐝", "c")}
    summaries["point"] = moments(rng.normal(size=(1, 1, 13)) * 9)
    look = figures.styles(list(summaries), "ref")
    curves = {BASELINE: (np.array([0, 1, 0]), np.array([0.1, 0.4, 0.4]))}
    drawn = [
        figures.standardised_differences(summaries, "ref", look),
        figures.functionals_by_engine(summaries, names, "ref", look),
        figures.functionals_by_engine({"c": summaries["c"]}, names, "ref", look),
        figures.objective_traces({"a $b$": ("sweep", np.array([1.0, 1.0]), "k")}),
        figures.reliability(curves, look),
        figures.efficiency([("ref", 1e-3), ("c", 200.0)], look),
    ]
    for figure in drawn:
        assert figures.to_png(figure).startswith(b"\x89PNG")


def test_styles_are_stable_and_tell_engines_apart() -> None:
    look = figures.styles(["a", "ref", "b"], "ref")
    assert look["a"] == figures.styles(["a"], "other")["a"]
    assert len({tuple(style.items()) for style in look.values()}) == 4


def test_spread_out_covers_the_range_without_repeats() -> None:
    means = np.r_[np.full(90, 0.01), np.linspace(0.1, 0.9, 10)]
    chosen = figures.spread_out(means, np.arange(100), 8)
    assert len(set(chosen.tolist())) == len(chosen) == 8
    assert means[chosen].max() == 0.9 and (np.diff(means[chosen]) >= 0).all()


def test_best_sampler_prefers_the_smallest_rhat() -> None:
    rows = [
        {"name": "svi", "kind": "bound", "max_rhat": None},
        {"name": "nuts", "kind": "mcmc", "max_rhat": 1.2},
        {"name": "gibbs", "kind": "mcmc", "max_rhat": 1.0},
        {"name": "em", "kind": "point", "max_rhat": None},
    ]
    trees = dict.fromkeys(("svi", "nuts", "gibbs", "em"), topic_tree([[[[1, 0, 0]]]]))
    assert best_sampler(rows, trees) == "gibbs"
    assert best_sampler(rows[:1], trees) == "svi"
    assert best_sampler(rows[3:], trees) is None


def test_symbol_names() -> None:
    assert symbol_name("🐝") == "honeybee"
    assert symbol_name("👩‍🚀") == "woman + rocket" and symbol_name("🇬🇵") == "flag GP"
    assert symbol_name("row 3") == "" and symbol_name("é") == "" and symbol_name("") == ""
