package rlhttp

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/gate"
)

// An IPOption changes how ByIP finds the address of the client.
type IPOption func(*address)

type address struct {
	trusted    []netip.Prefix
	hops       int    // trusted by number
	header     string // believed instead of X-Forwarded-For
	ipv6Prefix int
	warnOnce   sync.Once
}

// Trust names the proxies that are believed: addresses and CIDRs. X-Forwarded-For is read from the right as long as the
// address is one of theirs. It panics if a text is neither.
func Trust(proxies ...string) IPOption {
	var prefixes []netip.Prefix
	for _, text := range proxies {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			alone, err := netip.ParseAddr(text)
			if err != nil {
				panic("rlhttp: " + text + " is neither an address nor a CIDR")
			}
			prefix = netip.PrefixFrom(alone, alone.BitLen())
		}
		if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
		}
		if prefix.Bits() == 0 {
			slog.Warn("rlhttp: every proxy is trusted, so every client can choose its address", "trusted", text)
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return func(a *address) { a.trusted = append(a.trusted, prefixes...) }
}

// TrustHops believes the nearest n proxies, whatever their addresses are.
func TrustHops(n int) IPOption { return func(a *address) { a.hops = n } }

// FromHeader takes the address from a header such as X-Real-IP in place of X-Forwarded-For, if the peer is trusted.
func FromHeader(name string) IPOption { return func(a *address) { a.header = name } }

// IPv6Prefix is how many bits of an IPv6 address count; without it 64, which is what one customer usually has.
func IPv6Prefix(bits int) IPOption { return func(a *address) { a.ipv6Prefix = bits } }

// ByIP is the address of the client: that of the connection, unless Trust or TrustHops is given. IPv6 addresses
// count by their first 64 bits. A peer without an address (a Unix socket) is an error, unless TrustHops skips it.
func ByIP(options ...IPOption) KeyFunc {
	from := &address{ipv6Prefix: 64}
	for _, option := range options {
		option(from)
	}
	return from.key
}

func (a *address) key(r *http.Request) (string, error) {
	found, err := a.find(r)
	if err != nil {
		return "", err
	}
	return gate.AddressKey(found, a.ipv6Prefix), nil
}

// find walks the addresses from the right: the peer, then what each proxy has added to the header. The first that is
// not trusted counts. What is no address ends the walk, and the last good one counts.
func (a *address) find(r *http.Request) (netip.Addr, error) {
	found, known := gate.ParseAddress(r.RemoteAddr)
	if !known && a.hops == 0 {
		return found, &ratelimit.RefusedError{Code: ratelimit.BadArgument,
			Message: "the peer has no address (a Unix socket?): use TrustHops, or another key than ByIP"}
	}
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	if a.header != "" {
		forwarded = r.Header.Values(a.header)
		forwarded = forwarded[max(len(forwarded)-1, 0):]
	} else if len(a.trusted) == 0 && a.hops == 0 && r.Header.Get("X-Forwarded-For") != "" {
		a.warnOnce.Do(func() {
			slog.Warn("rlhttp: X-Forwarded-For arrives, but no proxy is trusted: all clients of a proxy count as one",
				"peer", r.RemoteAddr)
		})
	}

	for hops := 0; len(forwarded) > 0 && a.believes(found, hops); hops++ {
		next, ok := gate.ParseAddress(forwarded[len(forwarded)-1])
		if !ok {
			break
		}
		found, known = next, true
		forwarded = forwarded[:len(forwarded)-1]
	}
	if !known {
		return found, &ratelimit.RefusedError{Code: ratelimit.BadArgument, Message: "the proxies have sent no address"}
	}
	return found, nil
}

func (a *address) believes(found netip.Addr, hops int) bool {
	if hops < a.hops {
		return true
	}
	for _, prefix := range a.trusted {
		if prefix.Contains(found) {
			return true
		}
	}
	return false
}
