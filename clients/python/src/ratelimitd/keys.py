"""Whom a request counts for: keys from addresses, users and texts.

A key that comes from outside is not believed: `ip` takes the address of the connection, and X-Forwarded-For only from
proxies that it is configured to trust, read from the right, because the client can write everything to the left.
"""

from __future__ import annotations

import enum
import hashlib
import ipaddress
import logging
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from .steps import Io

log = logging.getLogger("ratelimitd")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Trusted = int | Sequence[str]  # so many hops, or these addresses and CIDRs


class NotLimited(enum.Enum):
    NOT_LIMITED = "not limited"


NOT_LIMITED: Final = NotLimited.NOT_LIMITED  # in place of a key or a policy: this limit does not count for this request
Made = str | bytes | NotLimited | None  # what a key comes to for one request; None and "": there is no key
KeySteps = Generator[Callable[[Io], Any], Any, Made]

FORWARDED = "X-Forwarded-For"
IPV6_PREFIX = 64


class Endpoint(NamedTuple):
    """The name of an endpoint, and what has it: another handler with the same name is a mistake."""

    name: str
    handler: Any


class Request(Protocol):
    """What a framework's adapter provides about a request."""

    service: str | None  # the framework's own name for the application
    can_wait: bool  # may it sleep without holding up others?

    @property
    def endpoint(self) -> Endpoint:
        """Where the limit is written: its route, or else the qualified name of the function."""

    @property
    def peer(self) -> str | None:
        """The address of the connection, as the framework gives it."""

    def header_lines(self, name: str) -> list[str]:
        """The values of a header field, in order."""

    def user(self) -> str | None:
        """Who is logged in, as the framework knows it. An error if what finds the user did not run."""

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the application as is usual in this framework."""


class Key:
    """A way to make a key of a request; `steps` gives None where there is none."""

    def steps(self, request: Request) -> KeySteps:
        raise NotImplementedError


KeyLike = Key | Callable[..., Any] | str


def key_steps(key: KeyLike, request: Request) -> KeySteps:
    """The text of any kind of key: a Key, the application's function, or a constant."""
    if isinstance(key, Key):
        return (yield from key.steps(request))
    made = key if isinstance(key, str) else (yield lambda io: request.call(key))
    return made if made is None or isinstance(made, (str, bytes, NotLimited)) else str(made)


def join_key(*parts: str) -> str:
    """The parts with `|` between them; `|` and `%` within a part are escaped, so different parts are different keys."""
    if not all(parts):
        raise ValueError("a part of a key is empty")
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in parts)


def join_any(parts: Sequence[str | bytes]) -> str | bytes:
    """The same with parts of which some are bytes; then the key is bytes."""
    texts = [part.decode("latin-1") if isinstance(part, bytes) else part for part in parts]
    if all(isinstance(part, str) for part in parts):
        return join_key(*texts)
    utf8 = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass") for part in parts]
    return join_key(*(part.decode("latin-1") for part in utf8)).encode("latin-1")


def hashed(value: str | bytes) -> str:
    """For tokens and other secrets: SHA-256 in hexadecimal digits."""
    if not value:
        raise ValueError("there is nothing to hash")
    return hashlib.sha256(value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")).hexdigest()


# ---- addresses ----


WRITTEN = re.compile(r"\[(?P<bracketed>[^][]+)\](:[0-9]{1,5})?|(?P<ipv4>[0-9.]+):[0-9]{1,5}|(?P<bare>[^][]+)")


def parse_address(text: str) -> Address | None:
    """An address as proxies write it, with brackets, port or zone; None for anything else. Mapped IPv4 is IPv4."""
    found = WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    host, _, zone = (found["bracketed"] or found["ipv4"] or found["bare"]).partition("%")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv4Address):
        return None if zone else address
    return address.ipv4_mapped or address


def parse_network(text: str) -> Network:
    network = ipaddress.ip_network(text, strict=False)
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is not None and network.prefixlen >= 96:
        return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def client_address(peer: str | None, forwarded: Iterable[str], trusted: int | Sequence[Network]) -> Address | None:
    """Who asks: from the right of `forwarded` and the peer, the first address that is not a trusted proxy's.

    forwarded  the lines of X-Forwarded-For. An entry that is not an address ends the walk: its writer is not
    believed.
    """
    found = parse_address(peer) if peer else None
    if isinstance(trusted, int):
        if trusted == 0:
            return found
    elif found is None or not _is_within(found, trusted):
        return found

    entries = [entry for line in forwarded for entry in line.split(",")]
    for n_hops, entry in enumerate(reversed(entries), 1):
        address = parse_address(entry)
        if address is None:
            return found
        found = address
        if n_hops == trusted if isinstance(trusted, int) else not _is_within(address, trusted):
            return found
    return found


def address_text(address: Address, ipv6_prefix: int = IPV6_PREFIX) -> str:
    """IPv4 as it is; of IPv6 the network, because one customer has all of it."""
    if isinstance(address, ipaddress.IPv4Address) or ipv6_prefix == 128:
        return str(address)
    return str(ipaddress.IPv6Network((address, ipv6_prefix), strict=False))


def _is_within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


class Ip(Key):
    """The client's address. Use `ip`, or `ip(...)` with:

    trusted_proxies  addresses and CIDRs of your own proxies, or how many of them a request passes
    ipv6_prefix      bits of an IPv6 address that count
    header           the header field in which they report where a request came from
    """

    def __init__(self, trusted_proxies: Trusted = (), ipv6_prefix: int = IPV6_PREFIX, header: str = FORWARDED) -> None:
        if isinstance(trusted_proxies, str):
            raise TypeError("trusted_proxies is a list of addresses and CIDRs, or a number")
        if not 1 <= ipv6_prefix <= 128:
            raise ValueError("ipv6_prefix is from 1 to 128")
        self.trusted: int | list[Network] = (
            trusted_proxies if isinstance(trusted_proxies, int) else [parse_network(one) for one in trusted_proxies]
        )
        self.ipv6_prefix = ipv6_prefix
        self.header = header
        self._has_warned = False
        if isinstance(self.trusted, list) and any(network.prefixlen == 0 for network in self.trusted):
            log.warning("trusted_proxies trusts everybody: every client can choose its own address")

    def __call__(self, trusted_proxies: Trusted = (), ipv6_prefix: int = IPV6_PREFIX, header: str = FORWARDED) -> Ip:
        return Ip(trusted_proxies, ipv6_prefix, header)

    def steps(self, request: Request) -> KeySteps:
        return self.of(request.peer, request.header_lines(self.header))
        yield  # a generator, as every key; this one asks no daemon

    def of(self, peer: str | None, forwarded: list[str]) -> str:
        if forwarded and not self.trusted and not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s arrives, but no proxy is trusted: behind a proxy, all clients share its address", self.header
            )
        address = client_address(peer, forwarded, self.trusted)
        if address is None:
            raise ValueError(
                f"the request has no client address (the peer is {peer!r}). Behind a proxy on a Unix socket, give how "
                "many proxies there are: ip(trusted_proxies=1). Else give the limit a key of its own"
            )
        return address_text(address, self.ipv6_prefix)


class User(Key):
    """Who is logged in, or else the address: `u|alice`, `i|192.0.2.7`. Use `user`, or `user(...)` with:

    get  a function that gives the user; None: nobody is logged in; default: what the framework knows
    ip   the key of those who are not logged in
    """

    def __init__(self, get: Callable[..., Any] | None = None, ip: Ip | None = None) -> None:
        self.get = get
        self.ip = ip or Ip()

    def __call__(self, get: Callable[..., Any] | None = None, ip: Ip | None = None) -> User:
        return User(get, ip)

    def steps(self, request: Request) -> KeySteps:
        get = self.get
        who = (yield lambda io: request.user()) if get is None else (yield lambda io: request.call(get))
        if isinstance(who, NotLimited):
            return who
        if who is None:
            return join_any(["i", self.ip.of(request.peer, request.header_lines(self.ip.header))])
        text = who if isinstance(who, bytes) else str(who)
        return join_any(["u", text]) if text else None


class Composite(Key):
    """Several keys as one. Where one of them is missing, there is no key."""

    def __init__(self, parts: Sequence[KeyLike]) -> None:
        for part in parts:
            if part == "" or not (isinstance(part, (Key, str)) or callable(part)):
                raise ValueError(f"a part of a key is a Key such as ip, a text or a function, not {part!r}")
        if not parts:
            raise ValueError("composite has no parts")
        self.parts = parts

    def steps(self, request: Request) -> KeySteps:
        made = []
        for part in self.parts:
            made.append((yield from key_steps(part, request)))
        if NOT_LIMITED in made:
            return NOT_LIMITED
        texts = [one for one in made if one and not isinstance(one, NotLimited)]
        return join_any(texts) if len(texts) == len(made) else None


def composite(*parts: KeyLike) -> Composite:
    """composite(user, "export"), composite(ip, lambda request: ...): the parts joined by `|`."""
    return Composite(parts)


ip = Ip()
user = User()
