package io.ratelimitd.spring;

import io.ratelimitd.Decision;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** The way of one call past its limits: the verdict, and what it holds until it has ended. */
final class Passage {
    /** @param limits the limits that it is about: one for each member of a check_all, else one */
    record Decided(Decision decision, List<Limit> limits, boolean isOfSlot) {
        /** The policy that denied. */
        String policy() {
            List<Decision> members = decision.members();
            for (int i = 0; i < members.size(); i++)
                if (!members.get(i).allowed()) return limits.get(i).policy().name();
            return limits.get(0).policy().name();
        }
    }

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

    void hold(Limit limit, Slot slot) {
        if (slot.decision().allowed()) slots.add(slot);
        add(new Decided(slot.decision(), List.of(limit), true));
    }

    void hold(Limit limit, Reservation reservation, long cost) {
        if (reservation.decision().allowed()) reservations.add(new Pending(limit, reservation, cost));
        add(new Decided(reservation.decision(), List.of(limit), false));
    }

    void add(Decided decided) {
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

    /** null: the daemon has answered, or every limit allows without an answer. */
    RuntimeException failure() {
        return failure;
    }

    /** Nothing was done: everything goes back. */
    void undo() {
        if (settled.compareAndSet(false, true)) reservations.forEach(pending -> pending.reservation.close());
        if (ended.compareAndSet(false, true)) slots.forEach(Slot::close);
    }

    /** Does anything depend on the status? */
    boolean waitsForStatus() {
        return !reservations.isEmpty();
    }

    /** The status is certain: charges what depends on it, or gives it back. Waits for nothing; only the first counts. */
    void settle(int status) {
        if (!settled.compareAndSet(false, true)) return;
        for (Pending pending : reservations) {
            if (pending.limit.isCharged(status, context)) pending.reservation.settleAsync(pending.cost);
            else pending.reservation.close();
        }
    }

    /** The call has ended, with this status if it had one before. Waits for nothing; only the first counts. */
    void end(int status) {
        settle(status);
        if (ended.compareAndSet(false, true)) slots.forEach(Slot::close);
    }
}
