package io.ratelimitd.spring;

import io.ratelimitd.http.HeaderStyle;

/** The header fields that report one limit. Retry-After comes with a denial in any case. */
public enum Headers {
    /** As `ratelimitd.headers` has it. */
    DEFAULT(null),
    /** RateLimit and RateLimit-Policy. */
    IETF(HeaderStyle.Fields.IETF),
    /** X-RateLimit-Limit, -Remaining and -Reset. */
    LEGACY(HeaderStyle.Fields.LEGACY),
    BOTH(HeaderStyle.Fields.BOTH),
    NONE(HeaderStyle.Fields.NONE);

    private final HeaderStyle.Fields fields;

    Headers(HeaderStyle.Fields fields) {
        this.fields = fields;
    }

    HeaderStyle.Fields or(HeaderStyle.Fields byDefault) {
        return fields == null ? byDefault : fields;
    }
}
