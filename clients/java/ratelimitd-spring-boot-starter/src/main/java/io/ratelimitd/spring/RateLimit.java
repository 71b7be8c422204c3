package io.ratelimitd.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Repeatable;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits a handler of a controller, or a method of any other bean. On a class it counts for each method that has none of
 * its own. Several on one method are decided together: all are charged, or none is.
 *
 * <p>Either {@link #policy}, or {@link #limit} and {@link #window}. The expressions are SpEL; the context of a handler is
 * {@link WebContext}, that of another bean {@link BeanContext}.
 */
@Documented
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Repeatable(RateLimits.class)
public @interface RateLimit {
    /** A policy of the daemon's configuration. */
    String policy() default "";

    /** So many in each window, which begins with a key's first. Counted for this method alone. */
    long limit() default -1;

    /** A whole number and its unit: ms, s, m, h or d. */
    String window() default "";

    /**
     * Whom to count: an expression. null: no limit for this call. The default is the client's address, or for a policy of
     * the preset endpoint-window the address, class and method as that preset has them; a bean without a request needs one.
     */
    String key() default "";

    /** Units to charge: a number, or an expression. */
    String cost() default "1";

    /** An expression: true lets the call through unlimited. */
    String skip() default "";

    /** What happens while there is no answer from the daemon. */
    OnError onError() default OnError.DEFAULT;

    /** An expression with the answer's #status: charged only if it is true, as with failed logins. Handlers only. */
    String chargeWhen() default "";

    /** The policy is a concurrency limit: take one of its slots until the call, or the whole answer, has ended. */
    boolean slot() default false;

    /** The header fields that report this limit. Handlers only. */
    Headers headers() default Headers.DEFAULT;
}
