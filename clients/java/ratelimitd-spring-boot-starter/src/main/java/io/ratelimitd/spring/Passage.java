package io.ratelimitd.spring;

import io.ratelimitd.Decision;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Predicate;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/** The way of one call past its limits: the verdict, and what it holds until it has ended. */
final class Passage {
    /** @param limits the limits that it is about: one for each member of a check_all, else one */
    record Decided(Decision decision, List<Limit> limits, boolean isOfSlot) {
        /** The policy that denied. */
        String policy() {
            List<Decision> members = decision.members();
            for (int i = 0; i < members.size(); i++)
                if (!members.get(i).allowed()) return limits.get(i).name();
            return limits.get(0).name();
        }

        /** Each limit's own. */
        List<Decision> each() {
            return decision.members().isEmpty() ? List.of(decision) : decision.members();
        }
    }

    private static final Comparator<Decision> LEAST =
            Comparator.comparing(Decision::allowed).thenComparing(Decision::remaining);
    private static final Log LOG = LogFactory.getLog(Passage.class);

    private record Pending(Limit limit, Reservation reservation, long cost) {
    }

    private final CallContext context;
    private final List<Decided> decisions = new ArrayList<>();
    private final List<Slot> slots = new ArrayList<>();
    private final List<Pending> reservations = new ArrayList<>();
    private final AtomicBoolean settled = new AtomicBoolean();
    private final AtomicBoolean ended = new AtomicBoolean();
    private Decided denial;
    private RuntimeException failure;

    Passage(CallContext context) {
        this.context = context;
    }

    CallContext context() {
        return context;
    }

    synchronized void hold(Limit limit, Slot slot) {
        if (ended.get()) slot.close(); /* the call ended in the meantime */
        else if (slot.decision().allowed()) slots.add(slot);
        add(new Decided(slot.decision(), List.of(limit), true));
    }

    synchronized void hold(Limit limit, Reservation reservation, long cost) {
        if (settled.get()) reservation.close();
        else if (reservation.decision().allowed()) reservations.add(new Pending(limit, reservation, cost));
        add(new Decided(reservation.decision(), List.of(limit), false));
    }

    synchronized void add(Decided decided) {
        decisions.add(decided);
        if (!decided.decision().allowed()) denial = decided;
    }

    /** There was no answer, and a limit denies then. */
    void fail(RuntimeException unavailable) {
        failure = unavailable;
    }

    boolean isOpen() {
        return denial == null && failure == null;
    }

    List<Decided> decisions() {
        return decisions;
    }

    /** null: no limit denied it. */
    Decided denial() {
        return denial;
    }

    /** For the handler: of several limits the one that denied, or has least left. null: no decision was made. */
    Decision decision() {
        return decisions.stream().flatMap(decided -> decided.each().stream()).min(LEAST).orElse(null);
    }

    static Decision leastOf(Object before, Decision decision) {
        if (!(before instanceof Decision earlier)) return decision;
        return decision == null || LEAST.compare(earlier, decision) <= 0 ? earlier : decision;
    }

    /** null: the daemon has answered, or every limit allows without an answer. */
    RuntimeException failure() {
        return failure;
    }

    /** Nothing was done: everything goes back. */
    synchronized void undo() {
        if (settled.compareAndSet(false, true)) reservations.forEach(pending -> pending.reservation.close());
        if (ended.compareAndSet(false, true)) slots.forEach(Slot::close);
    }

    /** The status is certain: charges what depends on it, or gives it back. Waits for nothing; only the first counts. */
    void settle(int status) {
        settle(pending -> isCharged(pending, status));
    }

    private synchronized void settle(Predicate<Pending> isCharged) {
        if (!settled.compareAndSet(false, true)) return;
        for (Pending pending : reservations) {
            if (isCharged.test(pending)) pending.reservation.settleAsync(pending.cost);
            else pending.reservation.close();
        }
    }

    /** An expression that fails must not lose what is held next to it: the unit stays charged. */
    private boolean isCharged(Pending pending, int status) {
        try {
            return pending.limit.isCharged(status, context);
        } catch (RuntimeException e) {
            LOG.error(pending.limit.where() + ": chargeWhen has failed, so it is charged", e);
            return true;
        }
    }

    /** The call has ended, with this status if it had one before. Waits for nothing; only the first counts. */
    void end(int status) {
        settle(status);
        release();
    }

    /** The client has left before there was a status: the call may have done its work, so it is charged. */
    void leave() {
        settle(pending -> true);
        release();
    }

    /** The call has ended, but its status is not certain yet. */
    synchronized void release() {
        if (ended.compareAndSet(false, true)) slots.forEach(Slot::close);
    }
}
