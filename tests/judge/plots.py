"""plots.py: docs/plots/*.svg, how each algorithm behaves around a window's edge, drawn from what the C engine decides.

    plots.py [--check]      writes them, or says which are not what the engine would make now

Each picture is the trace that shows its algorithm at its worst. The line is what was admitted in the window that ends at
each moment (a half-open interval of the window's length, whatever the clock says); the dashed lines are the limit and
the bound that lua/ALGORITHMS.md states; the dotted ones the windows' edges. Below, each check: admitted or denied.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "model"))

import calendars  # noqa: E402
from judge import run_judge, text_of  # noqa: E402
from traces import START_US, Policy, Trace  # noqa: E402

PLACE = ROOT / "docs" / "plots"
W = 60  # seconds; of the calendar's hours, minutes
LIMIT = 20
SECOND = 1_000_000


def every(step, start, end):
    """Moments in seconds."""
    return [round(start + i * step, 3) for i in range(int((end - start) / step))]


BUSY = every(0.5, 50, 170)  # two in a second, from shortly before an edge on
PLOTS = [  # name, its policy, moments of the checks in seconds after an edge, the stated bound, what one sees
    ("fixed_window", Policy("fixed_window", LIMIT, W * SECOND), BUSY, 2 * LIMIT,
     "all of one window just before its end, all of the next just after"),
    ("first_hit", Policy("first_hit", LIMIT, W * SECOND), [0, *BUSY], 2 * LIMIT - 1,
     "one check begins the window; the others come at its end, then a new one begins"),
    ("calendar_window", Policy("calendar_window", LIMIT, 60 * W * SECOND, calendar=("hour", "Asia/Kolkata", 0)), BUSY, 2 * LIMIT,
     "as a fixed window, but the edges are those of the zone's clocks: here on the half hours of UTC"),
    ("sliding_counter", Policy("sliding_counter", LIMIT, W * SECOND), BUSY, 2 * LIMIT - 1,
     "no burst after the edge: what the window before admitted fades evenly"),
    ("sliding_log", Policy("sliding_log", LIMIT, W * SECOND), BUSY, LIMIT,
     "never more than the limit, wherever the edge lies"),
    ("token_bucket", Policy("token_bucket", LIMIT, W * SECOND), BUSY, 2 * LIMIT - 1,
     "the burst, then one as often as one comes back"),
    ("leaky_bucket", Policy("leaky_bucket", LIMIT, W * SECOND, 5, False, 15 * SECOND), BUSY, LIMIT + 4,
     "burst 5, max_wait 15 s: drawn is when each goes ahead after its delay"),
]


def decided(policy, moments):
    """[(moment, moment at which it goes ahead, or None where it is denied)], in sixtieths of a window after an edge."""
    step = policy.window_us // W
    edge = calendars.end_us(*policy.calendar, START_US) if policy.calendar else -(-START_US // (W * step)) * W * step
    trace = Trace(0, "plot", policy, [(edge + round(at * step), [("k", "check", 1, None)]) for at in moments])
    answers = [line.split() for line in run_judge(text_of([trace]), "memory")]
    return [(at, round(at + int(answer[5]) * 1000 / step, 3) if answer[0] == "1" else None)
            for at, answer in zip(moments, answers)]


def in_the_window(ahead):
    """[(moment, units in the window that ends there)] wherever that changes."""
    changes = sorted({moment for at in ahead for moment in (at, round(at + W, 3))})
    return [(moment, sum(moment - W < at <= moment for at in ahead)) for moment in changes]


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 280, 46, 14, 44, 62
END = 180  # seconds


def x(at):
    return f"{LEFT + (WIDTH - LEFT - RIGHT) * at / END:.1f}"


def y(units):
    return f"{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * units / (2 * LIMIT + 2):.1f}"


def text(at_x, at_y, words, anchor="start", more=""):
    return f'<text x="{at_x}" y="{at_y}" text-anchor="{anchor}"{more}>{words}</text>'


def level(units, words, colour):
    return [f'<path d="M{x(0)} {y(units)}H{x(END)}" stroke="{colour}" stroke-dasharray="6 4"/>',
            text(x(END), f"{float(y(units)) - 4:.1f}", words, "end")]


def drawn(name, policy, moments, bound, caption):
    checks = decided(policy, moments)
    line = f"M{x(0)} {y(0)}"
    for at, units in in_the_window([ahead for _, ahead in checks if ahead is not None]):
        if at <= END:
            line += f"H{x(at)}V{y(units)}"
    unit = "min" if policy.calendar else "s"
    window = f"{policy.calendar[0]} of {policy.calendar[1]}" if policy.calendar else f"{W} s"
    settings = f"limit {policy.limit} per {window}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>', '<g fill="#222">',
             text(LEFT, 18, f"{name}: {settings}", more=' font-weight="bold"'), text(LEFT, 34, caption)]
    parts += [text(x(at), HEIGHT - 12, f"{at} {unit}", "middle") for at in range(0, END + 1, 30)]
    parts += [text(LEFT - 6, f"{float(y(units)) + 4:.1f}", str(units), "end") for units in range(0, 2 * LIMIT + 1, 10)]
    parts += ["</g>", '<g fill="none">', f'<path d="M{x(0)} {y(0)}H{x(END)}M{x(0)} {y(0)}V{TOP}" stroke="#222"/>']
    parts += [f'<path d="M{x(at)} {y(0)}V{TOP}" stroke="#999" stroke-dasharray="1 3"/>' for at in range(W, END, W)]
    parts += ['<g fill="#666">', *level(policy.limit, "limit", "#666")]
    if bound != policy.limit:
        parts += level(bound, f"bound {bound}", "#b00020")
    parts += ["</g>", f'<path d="{line}H{x(END)}" stroke="#0050b0" stroke-width="2"/>']
    for colour, wanted, low in (("#0050b0", True, 40), ("#d08080", False, 30)):
        marks = "".join(f"M{x(at)} {HEIGHT - low}v-8" for at, ahead in checks if (ahead is not None) == wanted)
        if marks:
            parts.append(f'<path d="{marks}" stroke="{colour}"/>')
    parts += ["</g>", "</svg>"]
    return "\n".join(parts) + "\n"


def made():
    return {f"{plot[0]}.svg": drawn(*plot) for plot in PLOTS}


def main():
    wrong = 0
    for name, picture in made().items():
        path = PLACE / name
        if "--check" not in sys.argv:
            path.write_text(picture)
        elif not path.exists() or path.read_text() != picture:
            print(f"docs/plots/{name} is not what the engine decides now; run ./dev plots")
            wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
