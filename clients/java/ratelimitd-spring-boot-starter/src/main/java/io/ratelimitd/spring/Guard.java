package io.ratelimitd.spring;

import io.ratelimitd.CallOptions;
import io.ratelimitd.Check;
import io.ratelimitd.Decision;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;

/**
 * Decides about a call that has limits; filter, interceptor and advice share it. What can be given back is taken first,
 * slots and reservations; then the rest is one check_all. So a denial leaves nothing charged.
 */
final class Guard {
    /** A leaky bucket denies in place of a delay. check_all has no such option: of that the thread sleeps. */
    private static final CallOptions NO_DELAY = CallOptions.DEFAULTS.maxWait(Duration.ZERO);

    private final RateLimitClient client;
    private final Policies policies;
    private final OnError onError;
    private final RateLimitErrorHandler errors;
    private final boolean enabled;

    Guard(RateLimitClient client, Policies policies, OnError onError, RateLimitErrorHandler errors, boolean enabled) {
        this.client = client;
        this.policies = policies;
        this.onError = onError;
        this.errors = errors;
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
            passage.hold(limit, client.tryAcquire(check, CallOptions.DEFAULTS));
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
        List<Limit> asked = new ArrayList<>();
        checks.forEach((limit, check) -> {
            if (members.stream().anyMatch(check::sameCounter)) return; /* it counts once */
            members.add(check);
            asked.add(limit);
        });
        if (members.isEmpty()) return;

        unlessUnavailable(passage, List.copyOf(checks.keySet()), () -> {
            Decision decision = members.size() == 1 ? client.check(members.get(0), NO_DELAY)
                    : client.checkAll(members, CallOptions.DEFAULTS);
            passage.add(new Passage.Decided(decision, asked, false));
            if (decision.delayMs() > 0) sleep(decision.delayMs());
            return null;
        });
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new CancellationException("interrupted during the delay of a limit");
        }
    }

    private interface Asking<T> {
        T ask();
    }

    private <T> T unlessUnavailable(Passage passage, List<Limit> limits, Asking<T> asking) {
        try {
            return asking.ask();
        } catch (UnavailableException e) {
            if (limits.stream().anyMatch(limit -> denies(limit, e, passage.context()))) passage.fail(e);
            return null;
        }
    }

    private boolean denies(Limit limit, UnavailableException error, CallContext context) {
        OnError rule = limit.onError();
        if (rule == OnError.DEFAULT) rule = errors.onUnavailable(error, limit.policy(), context);
        if (rule == null) throw new IllegalStateException("a RateLimitErrorHandler gave null, not ALLOW, DENY or DEFAULT");
        return (rule == OnError.DEFAULT ? onError : rule) == OnError.DENY;
    }
}
