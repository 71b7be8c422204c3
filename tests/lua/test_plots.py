"""test_plots.py: the pictures in docs/plots show the present decisions of the engine, are readable everywhere, and occur in the
documentation."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from harness import ROOT, algorithms, program

sys.path.insert(0, str(ROOT / "tests" / "replay"))

import plots  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [plot.name for plot in plots.PLOTS]
PICTURES = {path.name: path.read_text() for path in sorted(plots.PLACE.glob("*.svg"))}
WIDEST = 0.6  # of the font's size: an average letter of a wide sans-serif font


def texts(picture):
    return [element for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_every_picture_shows_the_present_decisions_of_the_engine():
    made = plots.made()
    assert sorted(path.name for path in plots.PLACE.iterdir()) == sorted(made)
    for name, picture in made.items():
        assert (plots.PLACE / name).read_text() == picture, f"docs/plots/{name}: run ./dev plots"


@pytest.mark.parametrize("plot", plots.PLOTS, ids=NAMES)
def test_no_picture_shows_more_than_the_bound_that_it_draws(plot):
    ahead = [at for _, at in plots.decided_for(plot) if at is not None]
    most = max(units for _, units in plots.counted(plot, ahead))
    assert most == plot.bound or plot.name == "sliding_counter" and most < plot.bound  # its trace is not the worst one


def test_every_algorithm_has_a_picture_and_a_row_among_all():
    natives = {*algorithms(), "concurrency"}
    assert set(NAMES) == natives, "add it to PLOTS of tests/replay/plots.py, and run ./dev plots"
    assert {row.policy.algorithm for row in plots.ROWS} == natives, "add it to ROWS of tests/replay/plots.py, and run ./dev plots"


def test_every_picture_is_in_the_documentation():
    page = (ROOT / "lua" / "ALGORITHMS.md").read_text()
    assert all(f"](../docs/plots/{name}.svg)" in page for name in NAMES)
    assert "](docs/plots/algorithms.svg)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("plot", plots.PLOTS, ids=NAMES)
def test_a_title_is_a_valid_configuration(plot, tmp_path):
    path = tmp_path / "ratelimitd.yaml"
    path.write_text(f"policies:\n  p: {{{plot.settings}}}\n")
    done = subprocess.run([program("ratelimitd"), "--check-config", "-c", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert plot.settings in [text.text for text in texts(PICTURES[f"{plot.name}.svg"])]


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_cut_off_at_the_edge_of_a_picture(name):
    width = float(ElementTree.fromstring(PICTURES[name]).get("viewBox").split()[2])
    for text in texts(PICTURES[name]):
        if text.get("x") is None:
            continue  # turned by 90 degrees
        at, needs = float(text.get("x")), WIDEST * plots.FONT * len(text.text)
        left = at - {"start": 0, "middle": needs / 2, "end": needs}[text.get("text-anchor")]
        assert 0 <= left and left + needs <= width, text.text


def test_no_label_of_an_axis_touches_the_next():
    for name, picture in PICTURES.items():
        labels = [text for text in texts(picture) if text.get("text-anchor") == "middle" and text.get("x") is not None]
        for one, next_one in zip(labels, labels[1:]):
            if one.get("y") == next_one.get("y"):
                gap = float(next_one.get("x")) - float(one.get("x"))
                assert gap > 0.56 * plots.FONT * (len(one.text) + len(next_one.text)) / 2, (name, one.text)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_legend_and_names_its_axes(name):
    words = [text.text for text in texts(PICTURES[name])]
    assert "denied" in words and ("admitted" in words or "goes ahead" in words)
    assert any(word.startswith(("time in ", "local time in ")) for word in words)
    if name != "algorithms.svg":
        assert "units" in words or "slots" in words
        assert any(word.startswith("units admitted in ") or word == "slots taken" for word in words)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_title_and_a_description_for_screen_readers(name):
    root = ElementTree.fromstring(PICTURES[name])
    assert root.get("role") == "img" and root.get("aria-labelledby") == "title desc"
    assert [element.tag for element in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert all(element.text and element.get("id") == element.tag.removeprefix(SVG) for element in list(root)[:2])


def luminance(colour):
    channels = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_can_be_read_on_a_light_and_on_a_dark_background(name):
    """It has its own background and enough contrast: 4.5 for text, 3 for lines, as in WCAG 2."""
    light, dark = re.search(r"<style>(.*?)@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", PICTURES[name]).groups()
    assert re.search(r'<rect class="paper" width="\d+" height="\d+"/>', PICTURES[name])
    assert not re.search(r'<(path|text|rect)[^>]* (fill|stroke)="', PICTURES[name])  # colours are defined in only one place
    for rules in (light, dark):
        colours = {kind: (what, colour) for kind, what, colour in re.findall(r"\.(\w+)\{(fill|stroke):(#\w{6})\}", rules)}
        assert colours.keys() == plots.COLOURS.keys()
        _, paper = colours.pop("paper")
        for kind, (what, colour) in colours.items():
            assert contrast(colour, paper) >= (4.5 if what == "fill" else 3), kind


def test_the_calendar_shows_a_local_clock_over_the_beginning_of_summer_time():
    first, second, third, last = (plots.hours_of_berlin(at) for at in plots.MIDNIGHTS_S)
    assert (second - first, third - second, last - third) == (24, 23, 24)
    words = [text.text for text in texts(PICTURES["calendar_window.svg"])]
    assert [word for word in words if word.endswith(" 0:00")] == ["Sat 0:00", "Sun 0:00", "Mon 0:00", "Tue 0:00"]
    assert any("CEST" in word for word in words)
