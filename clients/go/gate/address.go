package gate

import (
	"net/netip"
	"strings"
)

// ParseAddress reads an address with or without brackets, port and zone. IPv4 in IPv6 becomes IPv4.
func ParseAddress(text string) (netip.Addr, bool) {
	text = strings.Trim(text, " \t")
	if rest, ok := strings.CutPrefix(text, "["); ok {
		inside, after, closed := strings.Cut(rest, "]")
		if !closed || (after != "" && !isPort(after)) {
			return netip.Addr{}, false
		}
		text = inside
	} else if strings.Count(text, ":") == 1 {
		host, _, _ := strings.Cut(text, ":")
		if !isPort(text[len(host):]) {
			return netip.Addr{}, false
		}
		text = host
	}

	found, err := netip.ParseAddr(text)
	return found.Unmap().WithZone(""), err == nil
}

func isPort(text string) bool {
	digits, ok := strings.CutPrefix(text, ":")
	return ok && digits != "" && len(digits) <= 5 && strings.Trim(digits, "0123456789") == ""
}

// AddressKey is an address as a key: IPv4 whole, IPv6 by its first bits.
func AddressKey(address netip.Addr, ipv6Prefix int) string {
	if address.Is4() || ipv6Prefix >= 128 {
		return address.String()
	}
	return netip.PrefixFrom(address, max(ipv6Prefix, 0)).Masked().String()
}
