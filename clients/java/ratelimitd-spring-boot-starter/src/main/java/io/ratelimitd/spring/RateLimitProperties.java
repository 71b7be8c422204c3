package io.ratelimitd.spring;

import io.ratelimitd.http.ClientAddress;
import io.ratelimitd.http.HeaderStyle;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * Settings of the starter.
 *
 * @param enabled          false: nothing is limited, and no daemon is asked
 * @param socket           the daemon's socket; default: $RATELIMIT_SOCKET, else /run/ratelimitd/ratelimitd.sock
 * @param timeout          how long a request waits for the daemon at most
 * @param rememberDenials  the client repeats a denial by itself for this long; 0: never. Not for policies with count_denied
 * @param service          in front of the keys of limits that are written in the program; default: $RATELIMIT_SERVICE,
 *                         else $OTEL_SERVICE_NAME, else spring.application.name; empty: nothing
 * @param onError          what happens to a request while the daemon gives no answer
 * @param verify           at the start, compare the declared limits with the daemon's configuration
 * @param trustedProxies   addresses and networks of your own proxies, or how many of them stand in front
 * @param forwardedHeader  the header in which they report the client's address
 * @param ipv6Prefix       bits of an IPv6 address that make one client
 * @param headers          the header fields of answers
 * @param legacyReset      the meaning of X-RateLimit-Reset
 * @param filterOrder      place of the URL filter; Spring Security has -100, so -110 is before it
 * @param interceptorOrder place of the interceptor that limits handlers
 * @param filters          limits of URLs
 */
@ConfigurationProperties(prefix = "ratelimitd", ignoreUnknownFields = false) /* a misspelt option must not mean nothing */
public record RateLimitProperties(
        @DefaultValue("true") boolean enabled,
        String socket,
        @DefaultValue("250ms") Duration timeout,
        @DefaultValue("0") Duration rememberDenials,
        String service,
        @DefaultValue("allow") OnError onError,
        @DefaultValue("true") boolean verify,
        @DefaultValue List<String> trustedProxies,
        @DefaultValue("X-Forwarded-For") String forwardedHeader,
        @DefaultValue("" + ClientAddress.DEFAULT_IPV6_PREFIX) int ipv6Prefix,
        @DefaultValue("ietf") HeaderStyle.Fields headers,
        @DefaultValue("delta") HeaderStyle.Reset legacyReset,
        @DefaultValue("-90") int filterOrder,
        @DefaultValue("0") int interceptorOrder,
        @DefaultValue List<Filter> filters) {

    /**
     * A limit of URLs.
     *
     * @param pattern    such as /api/** or /users/{id}
     * @param exclude    patterns that it does not limit, such as /api/health
     * @param policy     a policy of the daemon's configuration
     * @param policyExpression an expression that gives the policy; NOT_LIMITED: this request is not limited
     * @param limit      in place of a policy: so many in each window, counted for this pattern
     * @param limitExpression an expression that gives the limit
     * @param window     with `limit`: a whole number and its unit
     * @param windowExpression an expression that gives the window
     * @param settings   more settings of a limit of its own, as in the daemon's configuration
     * @param name       what header fields, bodies and logs call a limit of its own
     * @param key        whom to count, an expression: ip, user, header('X-Tenant')
     * @param cost       units to charge: a number, or an expression
     * @param skip       an expression: true lets the request through unlimited
     * @param onError    what happens while the daemon gives no answer
     * @param chargeWhen an expression with the answer's #status: charged only if it is true
     * @param slot       the policy is a concurrency limit: hold a slot until the answer has ended
     * @param headers    the header fields that report this limit
     * @param endpoint   the name that a limit of its own is counted for; default: the pattern
     * @param enabled    false: as if it were not there
     */
    public record Filter(
            String pattern,
            @DefaultValue List<String> exclude,
            @DefaultValue("") String policy,
            @DefaultValue("") String policyExpression,
            Long limit,
            @DefaultValue("") String limitExpression,
            @DefaultValue("") String window,
            @DefaultValue("") String windowExpression,
            @DefaultValue Map<String, String> settings,
            @DefaultValue("") String name,
            @DefaultValue("ip") String key,
            @DefaultValue("1") String cost,
            @DefaultValue("") String skip,
            @DefaultValue("default") OnError onError,
            @DefaultValue("") String chargeWhen,
            @DefaultValue("false") boolean slot,
            @DefaultValue("default") Headers headers,
            @DefaultValue("") String endpoint,
            @DefaultValue("true") boolean enabled) {
        Declared declared() {
            return new Declared(policy, policyExpression, limit, limitExpression, window, windowExpression, settings, name,
                    key, cost, skip, onError, chargeWhen, slot, headers, endpoint);
        }
    }

    HeaderStyle style() {
        return new HeaderStyle(headers, legacyReset);
    }
}
