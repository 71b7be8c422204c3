package io.ratelimitd.spring;

import io.ratelimitd.Check;
import io.ratelimitd.Decision;
import io.ratelimitd.Policy;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.UnavailableException;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/**
 * Decides about a call that has limits; filters, handlers and advice share it. What can be given back is taken first, slots
 * and reservations; then the rest is one check_all. So a denial leaves nothing charged.
 */
final class Guard {
    private static final Log LOG = LogFactory.getLog(Guard.class);
    private static final Set<String> UNCHARGED = Set.of("allow", "deny", "local", "unlimited", "disabled", "deny_cache");

    private final Asking blocking;
    private final Asking asynchronous;
    private final Policies policies;
    private final OnError onError;
    private final RateLimitErrorHandler errors;
    private final boolean enabled;
    private final FailureLog log = new FailureLog();
    private final Set<String> missing = ConcurrentHashMap.newKeySet(); /* what the log has said of limits without a key */

    Guard(RateLimitClient client, Policies policies, OnError onError, RateLimitErrorHandler errors, boolean enabled) {
        blocking = new Asking.Blocking(client);
        asynchronous = new Asking.Asynchronous(client);
        this.policies = policies;
        this.onError = onError;
        this.errors = errors;
        this.enabled = enabled;
    }

    /**
     * @param outer of the same request, at the place before; null: none
     * @throws io.ratelimitd.RefusedException a mistake in the program or the daemon's configuration
     */
    Passage enter(List<Limit> limits, CallContext context, Passage outer) {
        Passage passage = new Passage(context, outer);
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

        return ask(asking, limits, passage)
                .thenCompose(nothing -> hold(asking, passage, List.copyOf(passage.asked()).iterator()))
                .thenCompose(nothing -> checkAll(asking, passage))
                .whenComplete((nothing, error) -> {
                    if (error != null || !passage.isOpen()) passage.undo();
                })
                .thenCompose(nothing -> passage.isOpen() ? CompletableFuture.completedFuture(null)
                        : giveBack(asking, passage.outer()));
    }

    /** Finds out which limits apply to this call. */
    private CompletableFuture<Void> ask(Asking asking, List<Limit> limits, Passage passage) {
        List<Limit> asksForPolicies = limits.stream().filter(Limit::asksForPolicies).toList();
        CompletableFuture<Boolean> known = asksForPolicies.isEmpty() || policies.areKnown()
                ? CompletableFuture.completedFuture(true)
                : unlessUnavailable(passage, asksForPolicies, asking.read(policies));
        return known.thenAccept(areKnown -> {
            for (Limit limit : limits) {
                int place = limit.mayMove() ? passage.nextMoving(limit.endpoint()) : 0;
                if (!passage.isOpen() || !areKnown && limit.asksForPolicies()) continue;
                try {
                    Check check = limit.check(passage.context(), policies, place);
                    if (check != null) passage.ask(limit, check);
                } catch (MissingKeyException e) {
                    boolean passes = limit.onError() == OnError.ALLOW;
                    if (missing.add(limit.where() + e.getMessage().substring(0, "no key".length())))
                        LOG.error(e.getMessage() + (passes ? ": such requests pass this limit" : ": such requests are answered 503"));
                    if (!passes) passage.fail(new UnavailableException(UnavailableException.Kind.UNREACHABLE, false, e.getMessage()));
                }
            }
        });
    }

    /** Takes what can be given back, one after another; what is left is for check_all. */
    private CompletableFuture<Void> hold(Asking asking, Passage passage, Iterator<Asked> limits) {
        while (limits.hasNext() && passage.isOpen()) {
            Asked one = limits.next();
            if (!one.limit.slot() && !one.isConditional()) continue;

            CompletableFuture<Void> taken = one.limit.slot()
                    ? asking.acquire(one.check).thenAccept(slot -> passage.hold(one, slot))
                    : asking.reserve(one.check).thenAccept(units -> passage.hold(one, units));
            return unlessUnavailable(passage, all(List.of(one)), taken)
                    .thenCompose(isAnswered -> hold(asking, passage, limits));
        }
        return CompletableFuture.completedFuture(null);
    }

    /** With those that are asked by them. */
    private static List<Limit> all(List<Asked> asked) {
        return asked.stream().flatMap(one -> Stream.concat(Stream.of(one.limit), one.also.stream())).toList();
    }

    private CompletableFuture<Void> checkAll(Asking asking, Passage passage) {
        List<Asked> members = passage.asked().stream().filter(one -> !one.limit.slot() && !one.isConditional()).toList();
        if (members.isEmpty() || !passage.isOpen()) return CompletableFuture.completedFuture(null);

        List<Check> checks = members.stream().map(one -> one.check).toList();
        CompletableFuture<Void> decided =
                (checks.size() == 1 ? asking.check(checks.get(0)) : asking.checkAll(checks)).thenCompose(decision -> {
                    passage.decided(members, decision);
                    return decision.delayMs() > 0 ? asking.pause(decision.delayMs())
                            : CompletableFuture.completedFuture(null);
                });
        return unlessUnavailable(passage, all(members), decided).thenAccept(isAnswered -> { });
    }

    /** A later place of the request has refused: what this one and those before it have taken goes back, before the answer. */
    private CompletableFuture<Void> giveBack(Asking asking, Passage place) {
        if (place == null) return CompletableFuture.completedFuture(null);
        CompletableFuture<Void> all = CompletableFuture.completedFuture(null);
        for (Asked one : place.asked()) {
            if (!one.isTaken) continue;
            one.isTaken = false;
            if (one.slot != null) one.slot.close();
            else all = all.thenCompose(nothing -> giveBack(asking, one));
        }
        return all.thenCompose(nothing -> giveBack(asking, place.outer()));
    }

    private CompletableFuture<Void> giveBack(Asking asking, Asked one) {
        CompletableFuture<Decision> after;
        if (one.reservation != null) after = asking.cancel(one.reservation);
        else if (one.decision.granted() == 0 || UNCHARGED.contains(one.decision.source()))
            return CompletableFuture.completedFuture(null);
        else after = countsDenied(asking, one).thenCompose(counts -> counts ? CompletableFuture.completedFuture(one.decision)
                : asking.refund(one.check.withCost(one.decision.granted())));
        return after.handle((decision, error) -> {
            if (error == null && decision.of() != null) one.decision = one.decision.withFiguresOf(decision);
            return null; /* what cannot be given back stays charged */
        });
    }

    /** A policy that counts denials keeps the charge. */
    private CompletableFuture<Boolean> countsDenied(Asking asking, Asked one) {
        Policy policy = one.check.policy();
        if (policy.isInline()) return CompletableFuture.completedFuture(policy.countsDenied());
        long version = one.decision.policyVersion();
        if (policies.isCurrent(policy.name(), version)) return CompletableFuture.completedFuture(policies.countsDenied(policy.name()));
        return asking.read(policies).thenApply(nothing -> {
            policies.seen(policy.name(), version);
            return policies.countsDenied(policy.name());
        });
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
