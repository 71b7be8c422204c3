package io.ratelimitd.spring;

/** What happens to a call while the daemon gives no answer. */
public enum OnError {
    /** As the {@link RateLimitErrorHandler} decides, or without one `ratelimitd.on-error`. */
    DEFAULT,
    /** It passes; the client logs that no limit counts. */
    ALLOW,
    /** It is refused with 503. For logins and whatever else must not be tried without limit. */
    DENY
}
