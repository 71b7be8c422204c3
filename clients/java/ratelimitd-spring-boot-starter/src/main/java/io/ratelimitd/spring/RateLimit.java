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
 * <p>Either {@link #policy}, or {@link #limit} and {@link #window}, each as a value or as an expression. The expressions
 * are SpEL; the context of a handler is {@link RequestContext}, that of another bean {@link BeanContext}.
 */
@Documented
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
@Repeatable(RateLimits.class)
public @interface RateLimit {
    /** The attribute of the request that has the {@link io.ratelimitd.Decision}; it has none if no decision was made. */
    String DECISION = "io.ratelimitd.decision";

    /** A policy of the daemon's configuration; or a limit in short, such as 10/5s. */
    String policy() default "";

    /** An expression that gives the policy. NOT_LIMITED: no limit for this call. null is treated as a missing key is. */
    String policyExpression() default "";

    /** So many in each window, which begins with a key's first. Counted for this method alone. */
    long limit() default -1;

    /** An expression that gives the limit. */
    String limitExpression() default "";

    /** A whole number and its unit: ms, s, m, h or d. */
    String window() default "";

    /** An expression that gives the window. */
    String windowExpression() default "";

    /** More settings of a limit of its own, as in the daemon's configuration: {"algorithm=token_bucket", "burst=20"}. */
    String[] settings() default {};

    /** What header fields, bodies and logs call a limit of its own. */
    String name() default "";

    /**
     * Whom to count: an expression. NOT_LIMITED: no limit for this call. null, or an empty key, is refused with 503, unless
     * {@link #onError} is ALLOW here. The default is the client's address, or for a policy of
     * the preset endpoint-window the address, class and method as that preset has them; a bean without a request needs one.
     * Bytes are sent as they are, and the parts of a list are joined.
     */
    String key() default "";

    /** Units to charge: a number, or an expression. */
    String cost() default "1";

    /** An expression: true lets the call through unlimited. */
    String skip() default "";

    /** What happens while there is no answer from the daemon. */
    OnError onError() default OnError.DEFAULT;

    /** An expression with the answer's #status: charged only if it is true, as with failed logins; or so many units as it gives.
     * Handlers only. */
    String chargeWhen() default "";

    /** The policy is a concurrency limit: take one of its slots until the call, or the whole answer, has ended. */
    boolean slot() default false;

    /** The name that a limit of its own is counted for. Default: the route of the handler, or the method of another bean.
     * Endpoints for which the same is written share their counters. */
    String endpoint() default "";

    /** The header fields that report this limit. Handlers only. */
    Headers headers() default Headers.DEFAULT;
}
