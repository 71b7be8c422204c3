package io.ratelimitd.spring;

import io.ratelimitd.Check;
import io.ratelimitd.Decision;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/**
 * The way of one call past the limits of one place: the verdict, and what it holds until it has ended. A request may come to
 * several places, one after another; each passage knows the one before.
 */
final class Passage {
    /** @param policy that denied */
    record Denial(Decision decision, String policy, boolean isOfSlot) {
    }

    private static final Comparator<Decision> LEAST =
            Comparator.comparing(Decision::allowed).thenComparing(Decision::remaining);
    private static final Log LOG = LogFactory.getLog(Passage.class);
    private static final Set<Limit> TOO_FEW = ConcurrentHashMap.newKeySet(); /* limits of which the log says so */

    private final CallContext context;
    private final Passage outer;
    private final List<Asked> asked = new ArrayList<>();
    private final Map<String, String> reported; /* the request's list fields, as they were reported last */
    private final AtomicBoolean settled = new AtomicBoolean();
    private final AtomicBoolean ended = new AtomicBoolean();
    private int moving; /* how many of its limits may move */
    private Denial denial;
    private RuntimeException failure;

    /** @param outer of the same request, at the place before; null: this is the first */
    Passage(CallContext context, Passage outer) {
        this.context = context;
        this.outer = outer;
        reported = outer == null ? new HashMap<>() : outer.reported;
    }

    CallContext context() {
        return context;
    }

    Passage outer() {
        return outer;
    }

    Map<String, String> reported() {
        return reported;
    }

    List<Asked> asked() {
        return asked;
    }

    /** The place of a limit that may move among those of this request and endpoint, from 1. */
    int nextMoving(String endpoint) {
        int before = ++moving;
        for (Passage earlier = outer; earlier != null; earlier = earlier.outer)
            if (earlier.context.getEndpoint().equals(endpoint)) before += earlier.moving;
        return before;
    }

    /** Asks for a limit as far as equal ones of this request have not: a policy and key is charged once, at the highest cost. */
    void ask(Limit limit, Check check) {
        Asked one = new Asked(limit, check);
        for (Asked earlier : List.copyOf(asked)) {
            if (!earlier.equalTo(one)) continue;
            if (limit.slot()) {
                earlier.also.add(limit);
                return;
            }
            if (one.isConditional() == earlier.isConditional()) {
                earlier.check = earlier.check.withCost(Math.max(earlier.check.cost(), check.cost()));
                earlier.also.add(limit);
                return;
            }
            if (earlier.isConditional()) { /* charged in any case; what more it would cost stays conditional */
                long more = earlier.check.cost() - check.cost();
                earlier.free = check.cost();
                earlier.check = earlier.check.withCost(Math.max(0, more));
                if (more <= 0) asked.remove(earlier);
            } else one.free += earlier.check.cost();
        }

        boolean isFirst = one.free == 0;
        for (Passage place = outer; place != null; place = place.outer) {
            synchronized (place) {
                for (Asked earlier : place.asked) {
                    if (!earlier.isTaken || !earlier.equalTo(one)) continue;
                    if (limit.slot()) return;
                    if (earlier.isConditional() && !one.isConditional()) {
                        one.replaces.add(earlier);
                        continue;
                    }
                    if (earlier.isConditional()) earlier.also.add(limit);
                    one.free += earlier.check.cost();
                    isFirst = false;
                }
            }
        }
        if (one.free > 0) one.check = check.withCost(Math.max(0, check.cost() - one.free));
        if (isFirst || one.check.cost() > 0) asked.add(one);
    }

    synchronized void hold(Asked one, Slot slot) {
        one.slot = slot;
        one.granted(slot.decision());
        if (ended.get() && one.isTaken) giveBack(one); /* the call ended in the meantime */
        if (!slot.decision().allowed()) denial = new Denial(slot.decision(), one.limit.name(), true);
    }

    synchronized void hold(Asked one, Reservation reservation) {
        one.reservation = reservation;
        one.granted(reservation.decision());
        if (settled.get() && one.isTaken) giveBack(one);
        if (!reservation.decision().allowed()) denial = new Denial(reservation.decision(), one.limit.name(), false);
    }

    /** @param ones the members of a check_all, or one */
    synchronized void decided(List<Asked> ones, Decision decision) {
        List<Decision> members = decision.members().isEmpty() ? List.of(decision) : decision.members();
        String policy = ones.get(0).limit.name();
        for (int i = ones.size() - 1; i >= 0; i--) {
            ones.get(i).decision = members.get(i);
            ones.get(i).isTaken = decision.allowed();
            if (!members.get(i).allowed()) policy = ones.get(i).limit.name();
        }
        if (decision.allowed()) ones.forEach(one -> one.replaces.forEach(Passage::giveBack));
        else denial = new Denial(decision, policy, false);
    }

    /** What a limit holds goes back. */
    private static void giveBack(Asked one) {
        one.isTaken = false;
        if (one.slot != null) one.slot.close();
        if (one.reservation != null) one.reservation.close();
    }

    /** There was no answer, and a limit denies then; or there was no key. */
    void fail(RuntimeException unavailable) {
        failure = unavailable;
    }

    boolean isOpen() {
        return denial == null && failure == null;
    }

    /** null: no limit denied it. */
    Denial denial() {
        return denial;
    }

    /** For the handler: of several limits the one that denied, or has least left. null: no decision was made. */
    Decision decision() {
        Decision least = null;
        for (Passage place = this; place != null; place = place.outer)
            for (Asked one : place.asked)
                if (one.decision != null && (least == null || LEAST.compare(one.decision, least) < 0)) least = one.decision;
        return least;
    }

    /** null: the daemon has answered, or every limit allows without an answer. */
    RuntimeException failure() {
        return failure;
    }

    /** Nothing was done: everything goes back. */
    synchronized void undo() {
        boolean first = settled.compareAndSet(false, true);
        ended.set(true);
        if (first) asked.stream().filter(one -> one.isTaken && (one.slot != null || one.reservation != null))
                .forEach(Passage::giveBack);
    }

    /** The status is certain: charges what depends on it, or gives it back. Only the first counts. It is completed when the
     * daemon has charged it, or has not answered. */
    synchronized CompletableFuture<Void> settle(int status) {
        CompletableFuture<Void> all = CompletableFuture.completedFuture(null);
        if (!settled.compareAndSet(false, true)) return all;
        for (Asked one : asked)
            if (one.isTaken && one.reservation != null)
                all = all.thenCombine(settle(one, units(one, status)), (before, nothing) -> null);
        return all;
    }

    private CompletableFuture<Void> settle(Asked one, long units) {
        if (units == 0) {
            giveBack(one);
            return CompletableFuture.completedFuture(null);
        }
        one.isTaken = false;
        long beyond = units - one.check.cost();
        Reservation reservation = one.reservation;
        return reservation.settleAsync(units).thenAccept(after -> {
            long more = reservation.id().isEmpty() ? after.granted() : after.charged();
            if (more < beyond && TOO_FEW.add(one.limit))
                LOG.warn(one.limit.where() + ": chargeWhen gave " + units + " units, and " + (one.check.cost() + more)
                        + " were left to charge; a policy with debt charges all of them");
        }).exceptionally(unavailable -> null);
    }

    /** What a conditional limit is charged in the end. */
    private long units(Asked one, int status) {
        long most = units(one, one.limit, status);
        for (Limit limit : one.also) most = Math.max(most, units(one, limit, status));
        return Math.max(0, most - one.free);
    }

    /** An expression that fails must not lose what is held next to it: the unit stays charged. */
    private long units(Asked one, Limit limit, int status) {
        try {
            return limit.units(status, one.check.cost() + one.free, context);
        } catch (RuntimeException e) {
            LOG.error(limit.where() + ": chargeWhen has failed, so it is charged", e);
            return one.check.cost() + one.free;
        }
    }

    /** The call has ended, with this status if it had one before. Waits for nothing; only the first counts. */
    void end(int status) {
        settle(status);
        release();
    }

    /** The client has left before there was a status: the call may have done its work, so it is charged. */
    synchronized void leave() {
        if (settled.compareAndSet(false, true))
            for (Asked one : asked) if (one.isTaken && one.reservation != null) settle(one, one.check.cost());
        release();
    }

    /** The call has ended, but its status is not certain yet. */
    synchronized void release() {
        if (ended.compareAndSet(false, true))
            asked.stream().filter(one -> one.isTaken && one.slot != null).forEach(Passage::giveBack);
    }
}
