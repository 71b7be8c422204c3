package io.ratelimitd.spring;

/** A limit is declared in a way that cannot be meant: the application does not start. */
final class InvalidLimitException extends IllegalStateException {
    private static final long serialVersionUID = 1L;

    InvalidLimitException(String where, String what) {
        super(where + ": " + what);
    }

    InvalidLimitException(String where, Throwable cause) {
        super(where + ": " + cause.getMessage(), cause);
    }
}
