"""plots.py: draws docs/plots/*.svg from the decisions of the C engine.

    plots.py [--check]      writes them, or reports the ones that differ from the present decisions

One picture for each algorithm shows its worst trace. The line is the number of units admitted in the window that ends at each
moment (a half-open interval of the window's length, at any time), or the taken slots for concurrency. The dashed lines are the
limit and the bound of lua/ALGORITHMS.md, the dotted lines are the windows' edges. Below is each check: admitted or denied.
`algorithms` shows all of them under the same traffic.

A picture has its own background, and colours for a dark one, because an image does not know the background of its page.
"""

import dataclasses
import datetime
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "model"))

import calendars  # noqa: E402
from comparison import run_replay, text_of  # noqa: E402
from slot_traces import SlotTrace  # noqa: E402
from traces import START_US, Policy, Trace  # noqa: E402

PLACE = ROOT / "docs" / "plots"
SECOND, MINUTE, HOUR = 1_000_000, 60_000_000, 3_600_000_000
LIMIT = 20


def every(step, start, end):
    """Moments from start on, before end."""
    return [round(start + i * step, 3) for i in range(int((end - start) / step))]


# ---- contents -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Plot:
    name: str  # of the file
    settings: str  # of the policy, as a configuration has them
    caption: str
    policy: Policy
    checks: list  # moments, in units of the time axis after its begin
    bound: int  # the stated one
    unit_us: int = SECOND
    window: float = 60  # the window of the line; in units of the time axis
    end: float = 180
    begin_us: int = -(-START_US // HOUR) * HOUR  # the beginning of the axis: an edge of every window
    held: float = 0  # concurrency: how long each slot is held
    counted: str = "units admitted in the 60 s that end here"
    axis: str = "time in seconds"
    edges: tuple = (60, 120)
    edges_are: str = "full minutes"
    labels: tuple = tuple((at, str(at)) for at in range(0, 181, 30))

    @property
    def most(self):
        """The top of the axis of units."""
        return self.policy.limit + 1 if self.held else 2 * self.policy.limit


BUSY = every(0.5, 50, 170)  # two in a second, from shortly before an edge on

# Three days of Berlin, the second of which has 23 hours: at 02:00 of the 29th of March 2026 the clocks go on to 03:00.
BERLIN, MIDNIGHT = "Europe/Berlin", datetime.datetime(2026, 3, 28)
MIDNIGHTS_S = [calendars.reached_s(BERLIN, MIDNIGHT + datetime.timedelta(days=i)) for i in range(4)]


def hours_of_berlin(midnight_s):
    return round((midnight_s - MIDNIGHTS_S[0]) / 3600, 3)


def labels_of_berlin():
    for day, midnight_s in enumerate(MIDNIGHTS_S):
        for hour in (0, 6, 12, 18) if day < 3 else (0,):
            naive = MIDNIGHT + datetime.timedelta(days=day, hours=hour)
            words = f"{hour}:00" if hour else f"{naive:%a} 0:00"
            yield hours_of_berlin(calendars.reached_s(BERLIN, naive)), words


def windowed(name, algorithm, caption, bound, more="", checks=BUSY, **policy):
    settings = f"algorithm: {algorithm}, limit: {LIMIT}, window: 1m{more}"
    return Plot(name, settings, caption, Policy(policy.pop("kind", algorithm), LIMIT, MINUTE, **policy), checks, bound)


PLOTS = [
    windowed("fixed_window", "fixed_window", "all of one window just before its end, all of the next just after", 2 * LIMIT),
    dataclasses.replace(
        windowed("first_hit", "fixed_window", "one check begins the window; the others come at its end, then a new one begins",
                 2 * LIMIT - 1, ", start: first_hit", [0, *BUSY], kind="first_hit"), edges=()),
    Plot("calendar_window", f"algorithm: calendar_window, limit: {LIMIT}, window: day, timezone: {BERLIN}",
         "windows are days of the local clock: the Sunday on which summer time begins has 23 hours",
         Policy("calendar_window", LIMIT, 24 * HOUR, calendar=("day", BERLIN, 0)), every(0.5, 14, 66), 2 * LIMIT,
         unit_us=HOUR, window=24, end=71, begin_us=MIDNIGHTS_S[0] * SECOND, counted="units admitted in the 24 hours that end here",
         axis=f"local time in {BERLIN} (CET, from Sunday 03:00 on CEST)", edges=tuple(hours_of_berlin(at) for at in MIDNIGHTS_S[1:3]),
         edges_are="midnight", labels=tuple(labels_of_berlin())),
    windowed("sliding_counter", "sliding_counter", "no burst after the edge: what the window before admitted fades evenly",
             2 * LIMIT - 1),
    windowed("sliding_log", "sliding_log", "never more than the limit, wherever the edge lies", LIMIT),
    windowed("token_bucket", "token_bucket", "the burst, then one as often as one comes back", 2 * LIMIT - 1),
    windowed("leaky_bucket", "leaky_bucket", "nearly every check is admitted later: the line is when each goes ahead after its delay",
             LIMIT + 4, ", burst: 5, max_wait: 15s", burst=5, max_wait_us=15 * SECOND),
    Plot("concurrency", "algorithm: concurrency, limit: 5", "at most so many at once: the sixth is denied until one of the five has ended",
         Policy("concurrency", 5, 12 * HOUR), [*every(4, 6, 60), *every(1, 60, 90), *every(6, 90, 174)], 5,
         held=13, counted="slots taken", edges=()),
]


@dataclasses.dataclass
class Row:
    settings: str
    policy: Policy
    held: float = 0


# For `algorithms`: calm, a burst across an edge, calm, a crowd, busy. In minutes.
TRAFFIC = sorted([*every(5, 2, 50), *every(0.5, 50, 70), *every(3, 70, 118), *every(0.1, 131, 133), *every(1.5, 146, 180)])
ROWS = [
    Row("fixed_window", Policy("fixed_window", LIMIT, HOUR)),
    Row("fixed_window, start: first_hit", Policy("first_hit", LIMIT, HOUR)),
    Row("calendar_window, timezone: Asia/Kolkata", Policy("calendar_window", LIMIT, HOUR, calendar=("hour", "Asia/Kolkata", 0))),
    Row("sliding_counter", Policy("sliding_counter", LIMIT, HOUR)),
    Row("sliding_log", Policy("sliding_log", LIMIT, HOUR)),
    Row("token_bucket", Policy("token_bucket", LIMIT, HOUR)),
    Row("leaky_bucket, burst: 5, max_wait: 15m", Policy("leaky_bucket", LIMIT, HOUR, 5, False, 15 * MINUTE)),
    Row("concurrency, limit: 3", Policy("concurrency", 3, 12 * HOUR), held=5),
]


# ---- decisions of the engine --------------------------------------------------------------------------------------


def slots_decided(policy, moments, held, begin_us, unit_us):
    """Each check takes a slot and gives it back `held` later. A denied one has nothing to give back."""
    steps = [(at, 1, "acquire", i) for i, at in enumerate(moments)] + [
        (round(at + held, 3), 0, "release", i) for i, at in enumerate(moments)]
    ticks = [(begin_us + round(at * unit_us), [(kind, "plot", "k", f"s{i}")]) for at, _, kind, i in sorted(steps)]
    trace = SlotTrace(0, {"plot": [("-", policy)]}, ticks)
    answers = [line.split() for line in run_replay(text_of([trace]), "memory")]
    taken = [answer[0] == "1" for (_, _, kind, _), answer in zip(sorted(steps), answers) if kind == "acquire"]
    return [(at, at if allowed else None) for at, allowed in zip(moments, taken)]


def decided(policy, moments, held=0, begin_us=Plot.begin_us, unit_us=SECOND):
    """[(moment, moment at which it goes ahead, or None if it is denied)]"""
    if policy.algorithm == "concurrency":
        return slots_decided(policy, moments, held, begin_us, unit_us)
    trace = Trace(0, "plot", policy, [(begin_us + round(at * unit_us), [("k", "check", 1, None)]) for at in moments])
    answers = [line.split() for line in run_replay(text_of([trace]), "memory")]
    return [(at, round(at + int(answer[5]) * 1000 / unit_us, 3) if answer[0] == "1" else None)
            for at, answer in zip(moments, answers)]


def decided_for(plot):
    return decided(plot.policy, plot.checks, plot.held, plot.begin_us, plot.unit_us)


def in_the_window(ahead, window):
    """[(moment, units in the window that ends there)] wherever that changes."""
    changes = sorted({moment for at in ahead for moment in (at, round(at + window, 3))})
    return [(moment, sum(moment - window < at <= moment for at in ahead)) for moment in changes]


def counted(plot, ahead):
    """The line: a slot counts as long as it is held, a unit for a window."""
    return in_the_window(ahead, plot.held or plot.window)


# ---- drawing ------------------------------------------------------------------------------------------------------

FONT = 12
COLOURS = {  # class: (what it colours, on white, on black)
    "paper": ("fill", "#ffffff", "#0d1117"),
    "ink": ("fill", "#1f2328", "#e6edf3"),
    "soft": ("fill", "#59636e", "#9da7b3"),
    "frame": ("stroke", "#1f2328", "#e6edf3"),
    "edge": ("stroke", "#6e7781", "#848d97"),
    "limit": ("stroke", "#59636e", "#9da7b3"),
    "bound": ("stroke", "#a40e26", "#ff9492"),
    "admitted": ("stroke", "#0550ae", "#6cb6ff"),
    "denied": ("stroke", "#bc4c00", "#f69d50"),
}


def style():
    def rules(dark):
        return "".join(f".{name}{{{what}:{(light, night)[dark]}}}" for name, (what, light, night) in COLOURS.items())

    return (f"<style>text{{font:{FONT}px sans-serif}}path{{fill:none}}.bold{{font-weight:bold}}{rules(0)}"
            f"@media (prefers-color-scheme:dark){{{rules(1)}}}</style>")


def text(at_x, at_y, words, anchor="start", kind="ink", more=""):
    at = f'x="{at_x:.1f}" y="{at_y:.1f}"' if not more else more
    return f'<text class="{kind}" {at} text-anchor="{anchor}">{words}</text>'


def path(kind, d, width=1, dashes=""):
    return f'<path class="{kind}" stroke-width="{width}"' + (f' stroke-dasharray="{dashes}"' if dashes else "") + f' d="{d}"/>'


def width_of(words):
    """The approximate width of a text in a wide sans-serif font."""
    return 0.56 * FONT * len(words)


def legend(left, at_y, entries):
    """Each entry: its mark, the space that takes, and words; one behind the other."""
    parts = []
    for mark, space, words in entries:
        parts += [mark(left, at_y), text(left + space + 5, at_y + 4, words, kind="soft")]
        left += space + 5 + width_of(words) + 14
    return parts


def line_mark(kind, width=2, dashes=""):
    return lambda left, at_y: path(kind, f"M{left:.1f} {at_y}h22", width, dashes)


def tick_mark(kind):
    return lambda left, at_y: path(kind, f"M{left + 2:.1f} {at_y - 4}v8M{left + 6:.1f} {at_y - 4}v8", 2)


def picture(width, height, title, description, parts):
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        'aria-labelledby="title desc">',
        f'<title id="title">{title}</title>', f'<desc id="desc">{description}</desc>', style(),
        f'<rect class="paper" width="{width}" height="{height}"/>', *parts, "</svg>"]) + "\n"


class Axes:
    """The time axis of any picture, from LEFT to the margin at the right."""

    def __init__(self, width, left, right, top, bottom, end):
        self.left, self.right, self.top, self.bottom, self.end = left, width - right, top, bottom, end

    def x(self, at):
        return self.left + (self.right - self.left) * at / self.end

    def labels(self, labels, title, below):
        return [*(text(self.x(at), self.bottom + below, words, "middle") for at, words in labels),
                path("frame", "".join(f"M{self.x(at):.1f} {self.bottom}v4" for at, _ in labels)),
                text((self.left + self.right) / 2, self.bottom + below + 18, title, "middle", "soft")]

    def edges(self, edges):
        if not edges:
            return []
        return [path("edge", "".join(f"M{self.x(at):.1f} {self.bottom}V{self.top}" for at in edges), 1, "1 3")]

    def ticks(self, kind, moments, at_y, height):
        marks = "".join(f"M{self.x(at):.1f} {at_y}v{height}" for at in moments)
        return [path(kind, marks)] if marks else []


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 330, 60, 30, 76, 264


def line_of(plot, axes, height_of, checks):
    line = f"M{axes.x(0):.1f} {height_of(0):.1f}"
    for at, units in counted(plot, [ahead for _, ahead in checks if ahead is not None]):
        if at <= plot.end:
            line += f"H{axes.x(at):.1f}V{height_of(units):.1f}"
    return line + f"H{axes.x(plot.end):.1f}"


def level(axes, at_y, words, kind):
    return [path(kind, f"M{axes.left} {at_y:.1f}H{axes.right}", 1, "6 4"),
            text(axes.right, at_y - 4, words, "end", "ink" if kind == "bound" else "soft")]


def drawn(plot):
    checks = decided_for(plot)
    axes = Axes(WIDTH, LEFT, RIGHT, TOP, BOTTOM, plot.end)
    bound_words = f"bound {plot.bound}" if plot.bound != plot.policy.limit else f"limit and bound {plot.bound}"

    def height_of(units):
        return BOTTOM - (BOTTOM - TOP) * units / (plot.most * 1.08)

    entries = [(line_mark("admitted"), 22, plot.counted), (tick_mark("admitted"), 8, "admitted"), (tick_mark("denied"), 8, "denied")]
    if plot.edges:
        entries.append((line_mark("edge", 1, "1 3"), 22, plot.edges_are))
    parts = [text(LEFT, 18, plot.settings, kind="ink bold"), text(LEFT, 36, plot.caption), *legend(LEFT, 54, entries)]
    parts += [text(LEFT - 8, height_of(units) + 4, str(units), "end") for units in range(0, plot.most + 1, max(1, plot.most // 4))]
    parts += [text(0, 0, "slots" if plot.held else "units", "middle", "soft",
                   f'transform="translate(18 {(TOP + BOTTOM) / 2:.0f}) rotate(-90)"')]
    parts += [path("frame", f"M{axes.x(0):.1f} {TOP}V{BOTTOM}H{axes.x(plot.end):.1f}"), *axes.labels(plot.labels, plot.axis, 40)]
    parts += axes.edges(plot.edges)
    if plot.bound != plot.policy.limit:
        parts += level(axes, height_of(plot.policy.limit), f"limit {plot.policy.limit}", "limit")
    parts += level(axes, height_of(plot.bound), bound_words, "bound" if plot.bound != plot.policy.limit else "limit")
    parts.append(path("admitted", line_of(plot, axes, height_of, checks), 2))
    parts += axes.ticks("admitted", [at for at, ahead in checks if ahead is not None], BOTTOM + 6, 8)
    parts += axes.ticks("denied", [at for at, ahead in checks if ahead is None], BOTTOM + 16, 8)

    n_admitted = sum(ahead is not None for _, ahead in checks)
    description = (f"Of {len(checks)} checks {n_admitted} are admitted: {plot.caption}. The line is the {plot.counted}; it reaches "
                   f"{max(units for _, units in counted(plot, [a for _, a in checks if a is not None]))}; the limit is "
                   f"{plot.policy.limit}, the bound {plot.bound}.")
    return picture(WIDTH, HEIGHT, plot.settings, description, parts)


# ---- all algorithms under the same traffic ------------------------------------------------------------------------

ROW, FIRST_ROW, ROWS_WIDTH, NAMES = 34, 78, 920, 306


def row(axes, at_y, name, admitted, denied, words):
    return [text(NAMES - 12, at_y + 14, name, "end", "ink"), path("edge", f"M{axes.left} {at_y + 13}H{axes.right}"),
            *axes.ticks("admitted", admitted, at_y, 13), *axes.ticks("denied", denied, at_y + 15, 6),
            text(axes.right + 10, at_y + 14, words, kind="soft")]


def all_drawn():
    bottom = FIRST_ROW + ROW * (len(ROWS) + 1) - 8
    axes = Axes(ROWS_WIDTH, NAMES, 100, FIRST_ROW - 6, bottom, 180)
    entries = [(tick_mark("admitted"), 8, "goes ahead"), (tick_mark("denied"), 8, "denied"),
               (line_mark("edge", 1, "1 3"), 22, "full hours")]
    title = f"The same checks under each algorithm, with limit: {LIMIT} and window: 1h"
    parts = [text(12, 18, title, kind="ink bold"),
             text(12, 36, "concurrency has no window: each check that is admitted holds its slot for five minutes"),
             *legend(12, 54, entries), *axes.edges((60, 120))]
    parts += row(axes, FIRST_ROW, "the checks", TRAFFIC, [], f"{len(TRAFFIC)} asked")
    counts = []
    for i, one in enumerate(ROWS, 1):
        checks = decided(one.policy, TRAFFIC, one.held, Plot.begin_us, MINUTE)
        ahead = [at for _, at in checks if at is not None]
        parts += row(axes, FIRST_ROW + ROW * i, one.settings, [at for at in ahead if at <= 180],
                     [at for at, goes in checks if goes is None], f"{len(ahead)} admitted")
        counts.append(f"{one.settings}: {len(ahead)}")
    parts += [path("frame", f"M{axes.left} {bottom}H{axes.right}"),
              *axes.labels([(at, str(at)) for at in range(0, 181, 30)], "time in minutes", 18)]
    description = f"Of {len(TRAFFIC)} checks in three hours are admitted: {'; '.join(counts)}."
    return picture(ROWS_WIDTH, bottom + 48, title, description, parts)


def made():
    return {"algorithms.svg": all_drawn(), **{f"{plot.name}.svg": drawn(plot) for plot in PLOTS}}


def main():
    wrong = 0
    for name, picture_now in made().items():
        where = PLACE / name
        if "--check" not in sys.argv:
            where.write_text(picture_now)
        elif not where.exists() or where.read_text() != picture_now:
            print(f"docs/plots/{name} is not what the engine decides now; run ./dev plots")
            wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
