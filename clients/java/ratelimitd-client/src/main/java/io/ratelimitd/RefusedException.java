package io.ratelimitd;

import java.util.List;

/** The daemon refused the call: a mistake in the program or in the daemon's configuration. It charged nothing. */
public final class RefusedException extends RateLimitException {
    private static final long serialVersionUID = 1L;
    private final String code;
    private final transient List<String> missing;
    private final boolean maybeCharged;

    public RefusedException(String code, String message) {
        this(code, message, List.of(), false);
    }

    RefusedException(String code, String message, List<String> missing, boolean maybeCharged) {
        super(message, null);
        this.code = code;
        this.missing = missing;
        this.maybeCharged = maybeCharged;
    }

    /** Such as UNKNOWN_POLICY, BAD_KEY, NOT_PERMITTED. A code that this version does not know is a refusal too. */
    public String code() {
        return code;
    }

    /** Only if this refused the second attempt of a call with `resend`, and the first one went out. */
    public boolean maybeCharged() {
        return maybeCharged;
    }

    /** Of {@link RateLimitClient#verify}: the names that no policy has; else empty. */
    public List<String> missing() {
        return missing == null ? List.of() : missing;
    }
}
