package io.ratelimitd;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * Cuts the daemon's bytes into answers, however they arrive. It never trusts an announced size: a message is refused as
 * soon as it can no longer end within 4 MiB, is nested deeper than 16, has a longer list or a type that the protocol does not
 * have.
 */
final class Framer {
    static final int MAX_BYTES = 4 << 20;
    static final int MAX_DEPTH = 16;
    static final int MAX_VALUES = 65536; /* more decisions do not fit into MAX_BYTES */
    private static final int RESPONSE_VALUES = 4;
    private static final int KEPT_BYTES = 64 << 10; /* a larger buffer is given up when it is empty */

    private byte[] bytes = new byte[KEPT_BYTES];
    private int begin; /* of the first message that is not taken yet */
    private int end;   /* of what has arrived */

    private int scanned; /* within that message: everything before is known */
    private int depth;
    private final long[] left = new long[MAX_DEPTH + 1]; /* values still to come, of each open array and map */

    void add(ByteBuffer arrived) {
        int len = arrived.remaining();
        if (begin == end) {
            begin = end = 0;
            if (bytes.length > KEPT_BYTES) bytes = new byte[KEPT_BYTES];
        }
        if (end + len > bytes.length) {
            int kept = end - begin;
            byte[] larger = kept + len > bytes.length ? new byte[Math.max(2 * bytes.length, kept + len)] : bytes;
            System.arraycopy(bytes, begin, larger, 0, kept);
            bytes = larger;
            begin = 0;
            end = kept;
        }
        arrived.get(bytes, end, len);
        end += len;
    }

    /** Is there a whole message? Then {@link #take} returns it. */
    boolean hasNext() throws IOException {
        while (scanned < end - begin || isWhole()) {
            if (isWhole()) return scanned <= end - begin;
            if (!scanHeader()) return false;
        }
        return false;
    }

    Object take() throws IOException {
        int from = begin;
        begin += scanned;
        int len = scanned;
        scanned = 0;
        depth = 0;
        return Wire.unpack(bytes, from, len);
    }

    private boolean isWhole() {
        return scanned > 0 && depth == 0;
    }

    /** Goes past one value, of an array or map past its header. False: the header has not arrived as a whole. */
    private boolean scanHeader() throws IOException {
        int head = bytes[begin + scanned] & 0xff;
        int lenBytes = lenBytes(head);
        if (scanned + 1 + lenBytes > end - begin) return false;

        long len = 0;
        for (int i = 1; i <= lenBytes; i++) len = len << 8 | bytes[begin + scanned + i] & 0xff;

        long payload = 0;
        long values = 0;
        if (head >= 0x80 && head <= 0x8f) values = 2L * (head & 0x0f);
        else if (head >= 0x90 && head <= 0x9f) values = head & 0x0f;
        else if (head >= 0xa0 && head <= 0xbf) payload = head & 0x1f;
        else switch (head) {
            case 0xc4, 0xc5, 0xc6, 0xd9, 0xda, 0xdb -> payload = len;
            case 0xdc, 0xdd -> values = len;
            case 0xde, 0xdf -> values = 2 * len;
            case 0xcc, 0xd0 -> payload = 1;
            case 0xcd, 0xd1 -> payload = 2;
            case 0xce, 0xd2 -> payload = 4;
            case 0xcf, 0xd3 -> payload = 8;
            default -> {
                if (head >= 0xc0 && head < 0xe0 && head != 0xc0 && head != 0xc2 && head != 0xc3)
                    throw new IOException("a type that the protocol does not have");
            }
        }

        if (scanned == 0 && values != RESPONSE_VALUES || scanned == 0 && head >= 0x80 && head <= 0x8f)
            throw new IOException("it is not a response");
        if (values > 2L * MAX_VALUES) throw new IOException("a list of more than " + MAX_VALUES + " values");
        long after = scanned + 1L + lenBytes + payload;
        if (after + values > MAX_BYTES) throw new IOException("an answer of more than " + MAX_BYTES + " bytes");
        scanned = (int) after;
        if (values > 0) {
            if (depth == MAX_DEPTH) throw new IOException("an answer nested deeper than " + MAX_DEPTH);
            left[++depth] = values;
            return true;
        }
        while (depth > 0 && --left[depth] == 0) depth--;
        return true;
    }

    private static int lenBytes(int head) {
        return switch (head) {
            case 0xc4, 0xd9 -> 1;
            case 0xc5, 0xda, 0xdc, 0xde -> 2;
            case 0xc6, 0xdb, 0xdd, 0xdf -> 4;
            default -> 0;
        };
    }
}
