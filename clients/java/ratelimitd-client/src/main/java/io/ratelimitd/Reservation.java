package io.ratelimitd;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Units that were charged by estimate. {@link #settle} reports what was used; {@link #close} cancels the reservation unless
 * one of settle, cancel and keep was called before, because then the block ended by an exception.
 */
public final class Reservation implements AutoCloseable {
    private final RateLimitClient client;
    private final Decision decision;
    private final AtomicBoolean ended;

    Reservation(RateLimitClient client, Decision decision) {
        this.client = client;
        this.decision = decision;
        ended = new AtomicBoolean(decision.reservation() == null);
    }

    public Decision decision() {
        return decision;
    }

    /** False if the reserve was denied, and after settle, cancel or keep. */
    public boolean isOpen() {
        return !ended.get();
    }

    /** `actual` units were used: fewer or more than estimated. May be repeated after an UnavailableException. */
    public Decision settle(long actual) {
        ended.set(true);
        return client.now(client.settle(id(), actual));
    }

    public CompletableFuture<Decision> settleAsync(long actual) {
        ended.set(true);
        return client.later(client.settle(id(), actual));
    }

    /** Nothing was used. */
    public Decision cancel() {
        ended.set(true);
        return client.now(client.cancel(id()));
    }

    public CompletableFuture<Decision> cancelAsync() {
        ended.set(true);
        return client.later(client.cancel(id()));
    }

    /** The estimate stands: close() does nothing. The daemon still gives the units back at the end of the ttl, unless
     * another process settles the reservation. */
    public void keep() {
        ended.set(true);
    }

    /** To settle it in another process; the empty text if the reserve was denied. */
    public String id() {
        return decision.reservation() == null ? "" : decision.reservation();
    }

    @Override
    public void close() {
        if (ended.compareAndSet(false, true)) client.forget(client.cancel(id()));
    }
}
