package io.ratelimitd.spring;

import io.ratelimitd.Decision;
import io.ratelimitd.Reservation;
import io.ratelimitd.Slot;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** The way of one call past its limits: the verdict, and what it holds until it has ended. */
final class Passage {
    private record Pending(Limit limit, Reservation reservation, long cost) {
    }

    private final CallContext context;
    private final List<Decision> decisions = new ArrayList<>();
    private final List<Slot> slots = new ArrayList<>();
    private final List<Pending> reservations = new ArrayList<>();
    private final AtomicBoolean settled = new AtomicBoolean();
    private final AtomicBoolean ended = new AtomicBoolean();
    private Decision denial;
    private boolean denialIsOfSlot;
    private RuntimeException failure;

    Passage(CallContext context) {
        this.context = context;
    }

    void hold(Slot slot) {
        if (slot.decision().allowed()) slots.add(slot);
        add(slot.decision(), true);
    }

    void hold(Limit limit, Reservation reservation, long cost) {
        if (reservation.decision().allowed()) reservations.add(new Pending(limit, reservation, cost));
        add(reservation.decision(), false);
    }

    void add(Decision decision, boolean isOfSlot) {
        decisions.add(decision);
        if (decision.allowed()) return;
        denial = decision;
        denialIsOfSlot = isOfSlot;
    }

    /** There was no answer, and the limit says that nothing passes then. */
    void fail(RuntimeException unavailable) {
        failure = unavailable;
    }

    boolean isOpen() {
        return denial == null && failure == null;
    }

    List<Decision> decisions() {
        return decisions;
    }

    /** null: no limit denied it. */
    Decision denial() {
        return denial;
    }

    boolean denialIsOfSlot() {
        return denialIsOfSlot;
    }

    /** null: the daemon has answered, or nobody minds. */
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
