"""http_metrics.py: the page of metrics, read as numbers."""

import re

from http_client import ask

LINE = re.compile(r'(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)')


class Page:
    def __init__(self, text):
        self.text = text
        self.types, self.series, self.families = {}, {}, []
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in self.types, f"{name} is on the page twice"
                self.types[name] = kind
            elif not line.startswith("#"):
                found = LINE.fullmatch(line)
                assert found, line
                labels = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"] or ""))
                key = (found["name"], tuple(sorted(labels.items())))
                assert key not in self.series, f"{key} is on the page twice"
                self.series[key] = float(found["value"])

    def value(self, name, **labels):
        return self.series[name, tuple(sorted(labels.items()))]

    def sum(self, name, **labels):
        """Of all series with these labels, whatever others they have."""
        return sum(value for (series, pairs), value in self.series.items()
                   if series == name and labels.items() <= dict(pairs).items())

    def values(self, name, label):
        """What a label has in a family, in the order of the page."""
        return list(dict.fromkeys(dict(pairs)[label] for series, pairs in self.series if series == name))


def metrics(daemon):
    answer = ask(daemon, "/metrics")
    assert answer.status == 200
    return Page(answer.text)
