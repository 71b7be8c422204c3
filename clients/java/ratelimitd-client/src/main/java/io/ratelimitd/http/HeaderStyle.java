package io.ratelimitd.http;

/**
 * Which fields tell the caller about its limit.
 *
 * @param reset of the X-RateLimit fields
 */
public record HeaderStyle(Fields fields, Reset reset) {
    public static final HeaderStyle IETF = new HeaderStyle(Fields.IETF, Reset.DELTA);

    public enum Fields {
        /** RateLimit and RateLimit-Policy. */
        IETF,
        /** X-RateLimit-Limit, -Remaining and -Reset. */
        LEGACY,
        BOTH,
        NONE
    }

    public enum Reset {
        /** Seconds from now. */
        DELTA,
        /** Seconds since 1970. */
        EPOCH
    }

    boolean hasIetf() {
        return fields == Fields.IETF || fields == Fields.BOTH;
    }

    boolean hasLegacy() {
        return fields == Fields.LEGACY || fields == Fields.BOTH;
    }
}
