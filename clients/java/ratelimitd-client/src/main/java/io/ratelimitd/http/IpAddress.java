package io.ratelimitd.http;

import java.util.Arrays;

/** An address out of text, never out of a name: nothing is looked up. 4 bytes, or 16. */
final class IpAddress {
    private static final byte[] MAPPED = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1};

    private final byte[] bytes;

    private IpAddress(byte[] bytes) {
        this.bytes = bytes;
    }

    /** With or without brackets, port and zone; null if it is not an address. IPv4 in IPv6 becomes IPv4. */
    static IpAddress parse(String text) {
        String address = text.strip();
        if (address.startsWith("[")) {
            int end = address.indexOf(']');
            if (end < 0 || !address.substring(end + 1).matches("(:[0-9]{1,5})?")) return null;
            String inside = address.substring(1, end);
            return inside.indexOf(':') < 0 ? of(parse4(inside)) : parse6(inside);
        }
        int colon = address.indexOf(':');
        if (colon < 0) return of(parse4(address));
        if (colon == address.lastIndexOf(':'))
            return address.substring(colon + 1).matches("[0-9]{1,5}") ? of(parse4(address.substring(0, colon))) : null;
        return parse6(address);
    }

    private static IpAddress of(byte[] bytes) {
        if (bytes == null) return null;
        boolean isMapped = bytes.length == 16 && Arrays.equals(bytes, 0, 12, MAPPED, 0, 12);
        return new IpAddress(isMapped ? Arrays.copyOfRange(bytes, 12, 16) : bytes);
    }

    private static byte[] parse4(String text) {
        String[] parts = text.split("\\.", -1);
        if (parts.length != 4) return null;
        byte[] bytes = new byte[4];
        for (int i = 0; i < 4; i++) {
            if (!parts[i].matches("0|[1-9][0-9]{0,2}") || Integer.parseInt(parts[i]) > 255) return null;
            bytes[i] = (byte) Integer.parseInt(parts[i]);
        }
        return bytes;
    }

    private static IpAddress parse6(String text) {
        int zone = text.indexOf('%');
        String address = zone < 0 ? text : text.substring(0, zone);
        int gap = address.indexOf("::");
        if (gap >= 0 && address.indexOf("::", gap + 1) >= 0) return null;

        byte[] head = groups(gap < 0 ? address : address.substring(0, gap), gap < 0);
        byte[] tail = gap < 0 ? new byte[0] : groups(address.substring(gap + 2), true);
        if (head == null || tail == null) return null;
        int len = head.length + tail.length;
        if (gap < 0 ? len != 16 : len > 14) return null;

        byte[] bytes = Arrays.copyOf(head, 16);
        System.arraycopy(tail, 0, bytes, 16 - tail.length, tail.length);
        return of(bytes);
    }

    /** The bytes of `a:b:c`; of the last group also written as IPv4. null if it is wrong. */
    private static byte[] groups(String text, boolean isEnd) {
        if (text.isEmpty()) return new byte[0];
        String[] parts = text.split(":", -1);
        byte[] bytes = new byte[2 * parts.length + 2];
        int len = 0;
        if (parts.length > 8) return null;
        for (int i = 0; i < parts.length; i++) {
            if (isEnd && i == parts.length - 1 && parts[i].indexOf('.') >= 0) {
                byte[] last = parse4(parts[i]);
                if (last == null) return null;
                System.arraycopy(last, 0, bytes, len, 4);
                return Arrays.copyOf(bytes, len + 4);
            }
            if (!parts[i].matches("[0-9a-fA-F]{1,4}")) return null;
            int group = Integer.parseInt(parts[i], 16);
            bytes[len++] = (byte) (group >> 8);
            bytes[len++] = (byte) group;
        }
        return Arrays.copyOf(bytes, len);
    }

    /** Are its first bits those of the other? Never of another family. */
    boolean isIn(IpAddress network, int bits) {
        if (network.bytes.length != bytes.length) return false;
        for (int i = 0; i < bits; i++) {
            int mask = 0x80 >> i % 8;
            if ((bytes[i / 8] & mask) != (network.bytes[i / 8] & mask)) return false;
        }
        return true;
    }

    int bits() {
        return 8 * bytes.length;
    }

    /** As a key: IPv4 as it is, of IPv6 the network of this length. */
    String key(int prefix) {
        if (bytes.length == 4) {
            return (bytes[0] & 255) + "." + (bytes[1] & 255) + "." + (bytes[2] & 255) + "." + (bytes[3] & 255);
        }
        byte[] network = new byte[16];
        for (int i = 0; i < prefix; i++) network[i / 8] |= (byte) (bytes[i / 8] & 0x80 >> i % 8);
        return text(network) + (prefix == 128 ? "" : "/" + prefix);
    }

    /** RFC 5952: small letters, the longest run of at least two zero groups (the first of equal ones) as `::`. */
    private static String text(byte[] bytes) {
        int longest = 1;
        int from = -1;
        for (int i = 0; i < 8; i++) {
            int n = 0;
            while (i + n < 8 && bytes[2 * (i + n)] == 0 && bytes[2 * (i + n) + 1] == 0) n++;
            if (n > longest) {
                longest = n;
                from = i;
            }
        }
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            if (i == from) {
                text.append("::");
                i += longest - 1;
                continue;
            }
            if (!text.isEmpty() && text.charAt(text.length() - 1) != ':') text.append(':');
            text.append(Integer.toHexString((bytes[2 * i] & 255) << 8 | bytes[2 * i + 1] & 255));
        }
        return text.toString();
    }
}
