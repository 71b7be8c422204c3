package io.ratelimitd;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;

/** Making keys out of what comes from outside. */
public final class Key {
    /** Bytes of a key that is sent as it is. A longer one must not become BAD_KEY, because attackers choose it. */
    public static final int MAX_BYTES = 512;
    private static final int KEPT_BYTES = 64;

    /** The one value that switches a limit off for a call, in place of its key or policy. Compared as an object, so no text
     * of a client is equal to it. */
    @SuppressWarnings("StringOperationCanBeSimplified")
    public static final String NOT_LIMITED = new String("NOT_LIMITED");

    private Key() {
    }

    /** The parts with | between them; | and % within a part are escaped, so that no two lists give the same key. */
    public static String join(String... parts) {
        StringBuilder key = new StringBuilder();
        for (int i = 0; i < parts.length; i++) {
            if (parts[i].isEmpty()) throw new IllegalArgumentException("a part of the key is empty");
            if (i > 0) key.append('|');
            key.append(parts[i].replace("%", "%25").replace("|", "%7C"));
        }
        return key.toString();
    }

    /** For secrets such as tokens: their SHA-256 in 64 hex digits. */
    public static String hashed(String secret) {
        if (secret.isEmpty()) throw new IllegalArgumentException("the secret for the key is empty");
        return sha256(secret.getBytes(StandardCharsets.UTF_8));
    }

    static Object bounded(String key) {
        if (key.length() * 3 <= MAX_BYTES) return key;
        byte[] bytes = key.getBytes(StandardCharsets.UTF_8);
        return bytes.length <= MAX_BYTES ? key : shortened(bytes);
    }

    static Object bounded(byte[] key) {
        return key.length <= MAX_BYTES ? key.clone() : shortened(key);
    }

    private static byte[] shortened(byte[] key) {
        byte[] hash = ("#" + sha256(key)).getBytes(StandardCharsets.US_ASCII);
        byte[] result = Arrays.copyOf(key, KEPT_BYTES + hash.length);
        System.arraycopy(hash, 0, result, KEPT_BYTES, hash.length);
        return result;
    }

    private static String sha256(byte[] bytes) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
