package io.ratelimitd;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** One connection, as the slots see it that end with it. */
public final class Link {
    private final Set<Slot> slots = ConcurrentHashMap.newKeySet();
    private volatile boolean lost;

    /** The connection has ended, and every slot with it. */
    public void lose() {
        lost = true;
        for (Slot slot : slots) slot.markLost();
        slots.clear();
    }

    void hold(Slot slot) {
        slots.add(slot);
        if (lost && slots.remove(slot)) slot.markLost(); /* it was lost between the answer and now */
    }

    void drop(Slot slot) {
        slots.remove(slot);
    }
}
