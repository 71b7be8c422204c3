"""test_plots.py: the pictures in docs/plots are what the engine decides now, and each stands in the documentation."""

import sys

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "tests" / "judge"))

import plots  # noqa: E402

PICTURES = [f"{plot[0]}.svg" for plot in plots.PLOTS]


def test_every_picture_is_what_the_engine_decides_now():
    made = plots.made()
    assert sorted(path.name for path in plots.PLACE.iterdir()) == sorted(made)
    for name, picture in made.items():
        assert (plots.PLACE / name).read_text() == picture, f"docs/plots/{name}: run ./dev plots"


@pytest.mark.parametrize("plot", plots.PLOTS, ids=PICTURES)
def test_no_picture_shows_more_than_the_bound_that_it_draws(plot):
    _, policy, moments, bound, _ = plot
    ahead = [at for _, at in plots.decided(policy, moments) if at is not None]
    assert max(units for _, units in plots.in_the_window(ahead)) <= bound


def test_every_picture_stands_in_the_documentation():
    told = (ROOT / "lua" / "ALGORITHMS.md").read_text()
    assert all(f"](../docs/plots/{name})" in told for name in PICTURES)
