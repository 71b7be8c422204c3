package io.ratelimitd.spring;

import io.ratelimitd.Check;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.Stream;

/**
 * Decides about a call that has limits; filters, handlers and advice share it. What can be given back is taken first, slots
 * and reservations; then the rest is one check_all. So a denial leaves nothing charged.
 */
final class Guard {
    private final Asking blocking;
    private final Asking asynchronous;
    private final Policies policies;
    private final OnError onError;
    private final RateLimitErrorHandler errors;
    private final boolean enabled;
    private final FailureLog log = new FailureLog();

    Guard(RateLimitClient client, Policies policies, OnError onError, RateLimitErrorHandler errors, boolean enabled) {
        blocking = new Asking.Blocking(client);
        asynchronous = new Asking.Asynchronous(client);
        this.policies = policies;
        this.onError = onError;
        this.errors = errors;
        this.enabled = enabled;
    }

    /** @throws io.ratelimitd.RefusedException a mistake in the program or the daemon's configuration */
    Passage enter(List<Limit> limits, CallContext context) {
        Passage passage = new Passage(context);
        try {
            enter(blocking, limits, passage).join();
        } catch (CompletionException e) {
            throw e.getCause() instanceof RuntimeException cause ? cause : e;
        }
        return passage;
    }

    /** The same without waiting. A passage that is ended in the meantime keeps nothing. */
    CompletableFuture<Passage> enterAsync(List<Limit> limits, Passage passage) {
        return enter(asynchronous, limits, passage).thenApply(nothing -> passage);
    }

    private CompletableFuture<Void> enter(Asking asking, List<Limit> limits, Passage passage) {
        if (!enabled || limits.isEmpty()) return CompletableFuture.completedFuture(null);

        return checks(asking, limits, passage)
                .thenCompose(checks -> hold(asking, passage, checks, List.copyOf(checks.keySet()).iterator()))
                .thenCompose(rest -> checkAll(asking, passage, rest))
                .whenComplete((nothing, error) -> {
                    if (error != null || !passage.isOpen()) passage.undo();
                });
    }

    /** Those that apply to this call. */
    private CompletableFuture<Map<Limit, Check>> checks(Asking asking, List<Limit> limits, Passage passage) {
        List<Limit> asksForPolicies = limits.stream().filter(Limit::asksForPolicies).toList();
        CompletableFuture<Boolean> known = asksForPolicies.isEmpty() || policies.areKnown()
                ? CompletableFuture.completedFuture(true)
                : unlessUnavailable(passage, asksForPolicies, asking.read(policies));
        return known.thenApply(areKnown -> {
            Map<Limit, Check> checks = new LinkedHashMap<>();
            for (Limit limit : limits) {
                if (!passage.isOpen() || !areKnown && limit.asksForPolicies()) continue;
                Check check = limit.check(passage.context(), policies);
                if (check != null) checks.put(limit, check);
            }
            return checks;
        });
    }

    /** Takes what can be given back, one after another; what is left is for check_all. */
    private CompletableFuture<Map<Limit, Check>> hold(Asking asking, Passage passage, Map<Limit, Check> checks,
                                                      Iterator<Limit> limits) {
        while (limits.hasNext() && passage.isOpen()) {
            Limit limit = limits.next();
            if (!limit.slot() && limit.chargeWhen() == null) continue;

            Check check = checks.remove(limit);
            if (check == null) continue; /* its slot is that of an equal limit */
            List<Limit> equal = limit.slot() ? takeEqualSlots(checks, check) : List.of();
            CompletableFuture<Void> taken = limit.slot()
                    ? asking.acquire(check).thenAccept(slot -> passage.hold(limit, slot))
                    : asking.reserve(check).thenAccept(units -> passage.hold(limit, units, check.cost()));
            return unlessUnavailable(passage, Stream.concat(Stream.of(limit), equal.stream()).toList(), taken)
                    .thenCompose(isAnswered -> hold(asking, passage, checks, limits));
        }
        return CompletableFuture.completedFuture(checks);
    }

    /** Two slots of one policy and key would deny each other. */
    private static List<Limit> takeEqualSlots(Map<Limit, Check> checks, Check check) {
        List<Limit> equal = checks.keySet().stream()
                .filter(other -> other.slot() && checks.get(other).sameCounter(check)).toList();
        equal.forEach(checks::remove);
        return equal;
    }

    private CompletableFuture<Void> checkAll(Asking asking, Passage passage, Map<Limit, Check> checks) {
        List<Check> members = new ArrayList<>();
        List<Limit> asked = new ArrayList<>();
        checks.forEach((limit, check) -> {
            if (members.stream().anyMatch(check::sameCounter)) return; /* it counts once */
            members.add(check);
            asked.add(limit);
        });
        if (members.isEmpty() || !passage.isOpen()) return CompletableFuture.completedFuture(null);

        CompletableFuture<Void> decided =
                (members.size() == 1 ? asking.check(members.get(0)) : asking.checkAll(members)).thenCompose(decision -> {
                    passage.add(new Passage.Decided(decision, asked, false));
                    return decision.delayMs() > 0 ? asking.pause(decision.delayMs())
                            : CompletableFuture.completedFuture(null);
                });
        return unlessUnavailable(passage, List.copyOf(checks.keySet()), decided).thenAccept(isAnswered -> { });
    }

    /** False: there was no answer, and the strictest of these limits has decided what follows. */
    private CompletableFuture<Boolean> unlessUnavailable(Passage passage, List<Limit> limits, CompletableFuture<?> answer) {
        return answer.handle((value, error) -> {
            if (error == null) return true;
            Throwable cause = error instanceof CompletionException ? error.getCause() : error;
            if (!(cause instanceof UnavailableException gone)) throw new CompletionException(cause);

            boolean denies = limits.stream().anyMatch(limit -> denies(limit, gone, passage.context()));
            log.failed(gone, denies);
            if (denies) passage.fail(gone);
            return false;
        });
    }

    private boolean denies(Limit limit, UnavailableException error, CallContext context) {
        OnError rule = limit.onError();
        if (rule == OnError.DEFAULT) rule = errors.onUnavailable(error, limit.policy(), context);
        if (rule == null) throw new IllegalStateException("a RateLimitErrorHandler gave null, not ALLOW, DENY or DEFAULT");
        return (rule == OnError.DEFAULT ? onError : rule) == OnError.DENY;
    }
}
