package io.ratelimitd;

/** What can be thrown by a call: no answer, a refusal, or (only by the scoped helpers) a denial. */
public abstract sealed class RateLimitException extends RuntimeException
        permits UnavailableException, RefusedException, DeniedException {
    private static final long serialVersionUID = 1L;

    RateLimitException(String message, Throwable cause) {
        super(message, cause);
    }
}
