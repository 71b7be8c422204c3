package io.ratelimitd.spring;

import io.ratelimitd.CallOptions;
import io.ratelimitd.Check;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Decides about a call that has limits; filter, interceptor and advice share it. What can be given back is taken first,
 * slots and reservations; then the rest is one check_all. So a denial leaves nothing charged.
 */
final class Guard {
    /** A servlet's thread does not sleep: a leaky bucket denies in place of a delay. */
    private static final CallOptions NO_DELAY = CallOptions.DEFAULTS.maxWait(Duration.ZERO);

    private final RateLimitClient client;
    private final Policies policies;
    private final OnError onError;
    private final boolean enabled;

    Guard(RateLimitClient client, Policies policies, OnError onError, boolean enabled) {
        this.client = client;
        this.policies = policies;
        this.onError = onError == OnError.DEFAULT ? OnError.ALLOW : onError;
        this.enabled = enabled;
    }

    /** @throws io.ratelimitd.RefusedException a mistake in the program or the daemon's configuration */
    Passage enter(List<Limit> limits, CallContext context) {
        Passage passage = new Passage(context);
        if (!enabled) return passage;

        try {
            Map<Limit, Check> checks = new LinkedHashMap<>();
            for (Limit limit : limits) {
                Check check = unlessUnavailable(passage, List.of(limit), () -> limit.check(context, policies));
                if (check != null) checks.put(limit, check);
            }
            for (Limit limit : List.copyOf(checks.keySet())) {
                if (!passage.isOpen()) break;
                if (limit.slot()) take(passage, limit, checks.remove(limit));
                else if (limit.chargeWhen() != null) reserve(passage, limit, checks.remove(limit));
            }
            if (passage.isOpen()) checkAll(passage, checks);
        } catch (RuntimeException e) {
            passage.undo();
            throw e;
        }
        if (!passage.isOpen()) passage.undo();
        return passage;
    }

    private void take(Passage passage, Limit limit, Check check) {
        unlessUnavailable(passage, List.of(limit), () -> {
            passage.hold(client.tryAcquire(check, CallOptions.DEFAULTS));
            return null;
        });
    }

    private void reserve(Passage passage, Limit limit, Check check) {
        unlessUnavailable(passage, List.of(limit), () -> {
            passage.hold(limit, client.tryReserve(check, CallOptions.DEFAULTS), check.cost());
            return null;
        });
    }

    private void checkAll(Passage passage, Map<Limit, Check> checks) {
        List<Check> members = new ArrayList<>();
        for (Check check : checks.values())
            if (members.stream().noneMatch(check::sameCounter)) members.add(check); /* it counts once */
        if (members.isEmpty()) return;

        unlessUnavailable(passage, List.copyOf(checks.keySet()), () -> {
            passage.add(members.size() == 1 ? client.check(members.get(0), NO_DELAY)
                    : client.checkAll(members, CallOptions.DEFAULTS), false);
            return null;
        });
    }

    private interface Asking<T> {
        T ask();
    }

    private <T> T unlessUnavailable(Passage passage, List<Limit> limits, Asking<T> asking) {
        try {
            return asking.ask();
        } catch (UnavailableException e) {
            if (limits.stream().anyMatch(this::denies)) passage.fail(e);
            return null;
        }
    }

    private boolean denies(Limit limit) {
        return (limit.onError() == OnError.DEFAULT ? onError : limit.onError()) == OnError.DENY;
    }
}
