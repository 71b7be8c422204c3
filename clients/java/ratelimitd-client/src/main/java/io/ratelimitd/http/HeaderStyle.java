package io.ratelimitd.http;

/**
 * The header fields that report a limit to the caller.
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
        NONE;

        public static Fields of(boolean isIetf, boolean isLegacy) {
            return isIetf ? isLegacy ? BOTH : IETF : isLegacy ? LEGACY : NONE;
        }
    }

    public enum Reset {
        /** Seconds from now. */
        DELTA,
        /** Seconds since 1970. */
        EPOCH
    }

    public boolean hasIetf() {
        return fields == Fields.IETF || fields == Fields.BOTH;
    }

    public boolean hasLegacy() {
        return fields == Fields.LEGACY || fields == Fields.BOTH;
    }
}
