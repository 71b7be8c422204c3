package io.ratelimitd.spring;

/** A call has no key, or no policy, for a limit: it is refused, unless onError = ALLOW is written at this limit. */
final class MissingKeyException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    MissingKeyException(String what, Limit limit) {
        super("no " + what + " for the limit of " + limit.endpoint() + " (" + limit.where() + ")");
    }
}
