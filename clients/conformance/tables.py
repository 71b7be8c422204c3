"""tables.py: reads cases from the two tables ipkeys.txt and headers.txt. Comments at their top describe the format."""

import re

import yaml


def slug(text):
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def cases_of_tables(folder):
    return {**dict(ip_keys((folder / "ipkeys.txt").read_text())), **dict(headers((folder / "headers.txt").read_text()))}


def asked(name, command, gives):
    return name, {"daemon": "none", "open": None, "steps": [{"ask": command.pop("do"), **command, "gives": gives}]}


def ip_keys(text):
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        what, peer, fields, trusted, more, key = (column.strip() for column in line.split("|"))
        command = {"do": "ip_key", "peer": peer if peer != "-" else None, "headers": []}
        for field in filter(None, (one.strip() for one in fields.split("&"))):
            name, _, value = field.partition(":")
            command["headers"].append([name.strip(), value.strip()])
        if trusted:
            command["trusted_proxies"] = int(trusted) if trusted.isdigit() else trusted.split()
        for option in more.split():
            name, _, value = option.partition("=")
            command[name] = int(value) if value.isdigit() else value
        yield asked(f"ipkeys/{slug(what)}", command, {"status": "argument"} if key == "error" else {"key": key})


def headers(text):
    for block in re.split(r"^== ", text, flags=re.M)[1:]:
        what, _, rest = block.partition("\n")
        given, _, expected = rest.partition("\n--> ")
        command = {"do": "headers", **yaml.safe_load(given)}
        status, _, rest = expected.partition("\n")
        head, _, body = rest.partition("\n\n")
        fields = [list(line.split(": ", 1)) for line in head.splitlines() if line.strip()]
        body = body.strip() or None
        if body and ["Content-Type", "text/plain; charset=utf-8"] in fields:
            body += "\n"
        yield asked(f"headers/{slug(what)}", command,
                    {"http_status": None if status.strip() == "passes" else int(status), "headers": fields, "body": body})
