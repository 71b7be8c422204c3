package io.ratelimitd;

import java.util.Locale;

/** The daemon gave no answer. The program may go on by its own rule; {@link #maybeCharged()} is what is known about it. */
public final class UnavailableException extends RateLimitException {
    private static final long serialVersionUID = 1L;

    public enum Kind {
        /** Never sent: no daemon, its backlog is full, or the client waits before it connects again. */
        UNREACHABLE,
        TIMEOUT,
        /** The connection ended, or the client was closed, before the answer came. */
        LOST,
        /** The answer is not valid. */
        PROTOCOL,
        OVERLOADED,
        SHUTTING_DOWN,
        STORE_UNAVAILABLE,
        /** Not tried, because the last three calls timed out. */
        BREAKER;

        /** As in counters and metrics: {@code store_unavailable}. */
        public String text() {
            return name().toLowerCase(Locale.ROOT);
        }
    }

    private final Kind kind;
    private final boolean maybeCharged;
    private final String code;

    public UnavailableException(Kind kind, boolean maybeCharged, String message) {
        this(kind, maybeCharged, "", message, null);
    }

    UnavailableException(Kind kind, boolean maybeCharged, String code, String message, Throwable cause) {
        super(message, cause);
        this.kind = kind;
        this.maybeCharged = maybeCharged;
        this.code = code;
    }

    /** The same, thrown where the caller can see it: the original has the stack of the client's own thread. */
    UnavailableException here() {
        return new UnavailableException(kind, maybeCharged, code, getMessage(), getCause());
    }

    public Kind kind() {
        return kind;
    }

    /** False: certainly nothing was charged. */
    public boolean maybeCharged() {
        return maybeCharged;
    }

    /** The daemon's code, such as OVERLOADED; of LOST, that of its final error; else empty. */
    public String code() {
        return code;
    }
}
