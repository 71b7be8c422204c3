package io.ratelimitd.spring;

import io.ratelimitd.Policy;
import io.ratelimitd.UnavailableException;

/**
 * Decides about a call that the daemon did not answer, for each limit whose onError is DEFAULT. A bean of this type comes
 * before `ratelimitd.on-error`. A mistake in the program or the configuration is not its business: it is always an error.
 */
@FunctionalInterface
public interface RateLimitErrorHandler {
    /**
     * @param policy of the limit; null if an expression gives it
     * @param call   what is limited; a {@link RequestContext} if it is a request
     * @return ALLOW or DENY; DEFAULT: as `ratelimitd.on-error` has it
     */
    OnError onUnavailable(UnavailableException error, Policy policy, CallContext call);
}
