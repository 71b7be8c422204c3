"""visitors.py: what a visitor may send to a limited endpoint, and what must follow from it.

No request is an error of the server. No spelling of the path and no header gives a client a counter of its own. A login
without a user is limited too. Each part comes from a loopback address of its own, so limits by address do not hide what it
looks for. The login has a form with the fields `user` and `password`, answers 401 to a wrong password, and 429 when it is
limited.
"""

import contextlib
import http.client
import re
from typing import NamedTuple

FORM, JSON = "application/x-www-form-urlencoded", "application/json"
CLAIMS = [  # of a client that is not logged in
    {"Authorization": "Bearer token-of-carol"}, {"Authorization": "Bearer "}, {"Authorization": ""}, {"Authorization": "alice"},
    {"Authorization": "Basic YWxpY2U6YWxpY2U="}, {"Authorization": "Bearer " + "x" * 3000}, {"Authorization": "\xff|%"},
    {"X-User": "carol"}, {"X-Plan": "gold"}, {"Cookie": "user=carol; plan=gold"}, {"X-Forwarded-User": "carol"},
]
ATTEMPTS = 200  # more than any limit of a login here

BODIES = [  # type, body
    (None, b""),
    (FORM, b""),
    (FORM, b"user="),
    (FORM, b"user=%20%09"),
    (FORM, b"user"),
    (FORM, b"user=a&user=b"),
    (FORM, b"user[]=a&user[]=b"),
    (FORM, b"user[toString]=1&user[length]=5"),
    (FORM, b"user[__proto__][x]=1"),
    (FORM, b"user=%FF%00%0d%0a|%7C%25"),
    (FORM, b"user=" + b"x" * 9000),
    (FORM, b"user=" + b"x" * 70_000),
    (JSON, b"null"),
    (JSON, b"5"),
    (JSON, b'["user"]'),
    (JSON, b'{"user": 5}'),
    (JSON, b'{"user": null}'),
    (JSON, b'{"user": ["a", {"b": 1}]}'),
    (JSON, b'{"user": {"toString": 1, "trim": 2, "length": 3}}'),
]
BROKEN = [  # bodies that no parser can read
    (FORM, b"user=%zz&%"),
    (FORM + "; charset=nonsense", b"user=a"),
    (JSON, b""),
    (JSON, b"{"),
    ("multipart/form-data", b"user=a"),
    ("multipart/form-data; boundary=x", b"{"),
    ("text/plain; charset=utf-16", b"\xff"),
    ("nonsense", b"user=a"),
]
PATHS = ["{};a=1", "{};jsessionid=1", "{}/", "/{}", "/.{}", "{}?a=1", "{}%20", "{}%3Ba=1", "{}%2F", "{}.json"]
FORGED = ["X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "X-Forwarded-Host"]


class Answer(NamedTuple):
    status: int
    page: bytes  # without numbers, such as those that are left, unless the whole is wanted


def ask(port, method, path, body=None, kind=None, fields=(), address="127.0.0.1", whole=False):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(address, 0))) as asks:
        asks.request(method, path, body, {**dict(fields), **({"Content-Type": kind} if kind else {})})
        answer = asks.getresponse()
        page = answer.read()
        return Answer(answer.status, page if whole else re.sub(rb"\d+", b"", page))


def answers(port):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return ask(port, "GET", "/no-such-page", address="127.0.1.99")


def guess(port, path, user, **options):
    return ask(port, "POST", path, f"user={user}&password=bad".encode(), FORM, **options)


def is_denied(one):
    """Is one attempt of many answered 429?"""
    return any(one().status == 429 for _ in range(ATTEMPTS))


def spellings(path):
    first = path[1]
    return [one.format(path) for one in PATHS] + ["/" + first.upper() + path[2:], f"/%{ord(first):02x}{path[2:]}"]


def passed(one, path, page):
    """How a client that is denied at the path gets this page all the same, or causes an error. one(path, fields) asks."""
    tries = [(spelling, {}) for spelling in spellings(path)]
    tries += [(path, {name: value}) for name in FORGED for value in ("203.0.113.9", "for=203.0.113.9", "nonsense, ,", "", "\xff")]
    for spelling, fields in tries:
        answer = one(spelling, fields)
        if answer == page or answer.status >= 500:
            yield f"{spelling} {fields or ''}: {answer.status}, although this client is denied at {path}"


def complaints_of_a_limit(port, path):
    """What is wrong with an endpoint for GET whose limit is by address. An empty list if nothing is."""
    def one(spelling, fields):
        return ask(port, "GET", spelling, fields=fields, address="127.0.1.1")

    page = one(path, {})
    if page.status != 200 or not is_denied(lambda: one(path, {})):
        return [f"GET {path}: {page.status}, then {ATTEMPTS} requests of one client are not denied"]
    return list(passed(one, path, page))


def complaints_of_spellings(port, path, page):
    """Which spellings of a path, whose limit admits nothing, get this page all the same, or an error of the server."""
    head, _, tail = path.rpartition("/")
    walks = [f"/free/..{path}", f"{head}/./{tail}", f"{head}//{tail}", f"{head};a=1/{tail}", f"{head}/y/../{tail}", path.replace("/", "%2F")]
    for spelling in [*spellings(path), *walks]:
        answer = ask(port, "GET", spelling, whole=True)
        if answer.page == page.encode() or answer.status >= 500:
            yield f"{spelling}: {answer.status}, although nobody is admitted at {path}"


def complaints_of_users(port, path, admitted, page=None):
    """What is wrong with an endpoint for GET whose limit is by user. `admitted`: how many requests each of these fields
    Authorization may make; `no one` is without it. `page`: the body, with the number that are left for %d."""
    address = "127.0.1.4"  # of all of them

    def one(path, fields, address=address):
        return ask(port, "GET", path, fields=fields, address=address, whole=True)

    for user, n in admitted.items():
        fields = {} if user == "no one" else {"Authorization": user}
        seen = [one(path, fields) for _ in range(n + 1)]
        if [answer.status for answer in seen] != [200] * n + [429]:
            yield f"{path}: {user} may make {n} requests, and gets {[answer.status for answer in seen]}"
        elif page and [answer.page.strip() for answer in seen[:n]] != [page % left for left in reversed(range(n))]:
            yield f"{path}: {user} gets {seen[0].page} ... {seen[n - 1].page}"
        elif fields and one(path, fields, "127.0.1.5").status != 429:
            yield f"{path}: {user} has another counter at another address"
    for spelling, fields in [(path, fields) for fields in CLAIMS] + [(f"{path}?user=carol", {}), (f"{path}?plan=gold", {})]:
        answer = one(spelling, fields)
        if answer.status == 200 or answer.status >= 500:
            yield f"{spelling} {fields}: {answer.status}, although a client without a login is denied at {path}"


def complaints_of_bodies(port, path, bodies):
    """Which of these requests are an error of the server."""
    for kind, body in bodies:
        status = ask(port, "POST", path, body, kind, address="127.0.1.2").status
        if status >= 500:
            yield f"{kind} {body[:60]!r}: {status}"


def complaints_of_a_login(port, path, by_account=True):
    """What is wrong with a login. `by_account`: another account is not denied with the one that is guessed at."""
    found = list(complaints_of_bodies(port, path, BODIES))

    def one(spelling, fields):
        return guess(port, spelling, "mallory", fields=fields, address="127.0.1.3")

    page = one(path, {})
    if page.status != 401 or not is_denied(lambda: one(path, {})):
        found.append(f"POST {path}: {page.status}, then {ATTEMPTS} wrong passwords for one account are not denied")
    elif by_account and guess(port, path, "bob", address="127.0.1.3") != page:
        found.append("another account is denied with the one that is guessed at")
    else:
        found += passed(one, path, page)

    for i, body in enumerate((b"password=bad", b"user=&password=bad", b"user=%20&password=bad")):
        if not is_denied(lambda: ask(port, "POST", path, body, FORM, address=f"127.0.1.{10 + i}")):
            found.append(f"{ATTEMPTS} requests with {body!r} are not denied")
    return found
