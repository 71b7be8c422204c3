package io.ratelimitd.http;

import io.ratelimitd.Key;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/**
 * Whose request is it? The address of the connection; behind your own proxies the one that they report, read from the
 * right, because the client itself can write everything to the left. Nothing is believed unless it is configured.
 */
public final class ClientAddress {
    public static final int DEFAULT_IPV6_PREFIX = 64;

    private final List<IpAddress> networks = new ArrayList<>();
    private final List<Integer> networkBits = new ArrayList<>();
    private final int hops;
    private final int ipv6Prefix;
    private final String header;

    /**
     * @param trustedProxies addresses and networks (10.0.0.0/8), or one number: how many proxies stand in front; empty:
     *                       no header is believed
     * @param ipv6Prefix     bits of an IPv6 address that make one client, 1 to 128
     * @param header         what the proxies write: X-Forwarded-For, or one like True-Client-IP with one address
     */
    public ClientAddress(List<String> trustedProxies, int ipv6Prefix, String header) {
        if (ipv6Prefix < 1 || ipv6Prefix > 128)
            throw new IllegalArgumentException("an IPv6 prefix has 1 to 128 bits, not " + ipv6Prefix);
        this.ipv6Prefix = ipv6Prefix;
        this.header = header;
        boolean isNumber = trustedProxies.size() == 1 && trustedProxies.get(0).strip().matches("[0-9]{1,4}");
        hops = isNumber ? Integer.parseInt(trustedProxies.get(0).strip()) : 0;
        if (isNumber) return;

        for (String proxy : trustedProxies) {
            String[] parts = proxy.strip().split("/", 2);
            IpAddress network = IpAddress.parse(parts[0]);
            boolean hasBits = parts.length == 2;
            if (network == null || hasBits && !parts[1].matches("[0-9]{1,3}"))
                throw new IllegalArgumentException("'" + proxy + "' is not an address, network or number of proxies");
            int bits = hasBits ? Integer.parseInt(parts[1]) : network.bits();
            if (bits > network.bits())
                throw new IllegalArgumentException("'" + proxy + "' has more than " + network.bits() + " bits");
            networks.add(network);
            networkBits.add(bits);
        }
    }

    public boolean trustsNoProxy() {
        return hops == 0 && networks.isEmpty();
    }

    public String header() {
        return header;
    }

    /**
     * The client's address as a key: 192.0.2.7, or 2001:db8:1:2::/64.
     *
     * @param peer    of the connection; null: it has none
     * @param headers the request's values of a field, in order
     * @throws IllegalArgumentException there is no address, as at a Unix socket
     */
    public String key(String peer, Function<String, ? extends List<String>> headers) {
        IpAddress client = peer == null ? null : IpAddress.parse(peer);
        if (client == null && hops == 0)
            throw new IllegalArgumentException("the request comes from no address (" + peer
                    + "); give its limit another key, or the number of trusted proxies");

        if (hops > 0 || client != null && isTrusted(client)) client = walk(client, headers.apply(header));
        if (client == null) throw new IllegalArgumentException("no proxy has reported the client's address");
        return client.key(ipv6Prefix);
    }

    private IpAddress walk(IpAddress peer, List<String> values) {
        List<String> entries = new ArrayList<>();
        for (String value : values) entries.addAll(List.of(value.split(",", -1)));

        IpAddress client = peer;
        for (int i = entries.size() - 1, hop = 1; i >= 0; i--, hop++) {
            IpAddress next = IpAddress.parse(entries.get(i));
            if (next == null) break; /* what is left of it cannot be believed */
            client = next;
            if (hops > 0 ? hop >= hops : !isTrusted(next)) break;
        }
        return client;
    }

    private boolean isTrusted(IpAddress address) {
        for (int i = 0; i < networks.size(); i++)
            if (address.isIn(networks.get(i), networkBits.get(i))) return true;
        return false;
    }

    /** `u|` and the user; without a login, `i|` and the address. */
    public static String userKey(String user, String addressKey) {
        return user == null ? Key.join("i", addressKey) : Key.join("u", user);
    }
}
