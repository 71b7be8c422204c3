package io.ratelimitd;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;

/**
 * Units that were charged by estimate. {@link #settle} reports what was used; {@link #close} cancels the reservation unless
 * one of settle, cancel and keep was called before, because then the block ended by an exception.
 */
public final class Reservation implements AutoCloseable {
    private final RateLimitClient client;
    private final Check check;
    private final Decision decision;
    private final AtomicBoolean ended;

    Reservation(RateLimitClient client, Check check, Decision decision) {
        this.client = client;
        this.check = check;
        this.decision = decision;
        ended = new AtomicBoolean(!decision.allowed());
    }

    /** What was charged. */
    Check check() {
        return check;
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
        return client.now(ending(() -> client.settle(this, actual)));
    }

    public CompletableFuture<Decision> settleAsync(long actual) {
        return client.later(ending(() -> client.settle(this, actual)));
    }

    /** Nothing was used. */
    public Decision cancel() {
        return client.now(ending(() -> client.cancel(this)));
    }

    public CompletableFuture<Decision> cancelAsync() {
        return client.later(ending(() -> client.cancel(this)));
    }

    /** A reservation can be ended again: the daemon knows that it has ended. A plain charge can not. */
    private RateLimitClient.Op<Decision> ending(Supplier<RateLimitClient.Op<Decision>> end) {
        boolean hadEnded = ended.getAndSet(true);
        return hadEnded && id().isEmpty() ? RateLimitClient.Op.known(decision) : end.get();
    }

    /** The estimate stands: close() does nothing. The daemon still gives the units back at the end of the ttl, unless
     * another process settles the reservation. */
    public void keep() {
        ended.set(true);
    }

    /** To settle it in another process; the empty text if the reserve was denied, or is one of inline
     * settings that the daemon cannot reserve, so that it was charged, and is refunded what is not used. */
    public String id() {
        return decision.reservation() == null ? "" : decision.reservation();
    }

    @Override
    public void close() {
        if (ended.compareAndSet(false, true)) client.forget(client.cancel(this));
    }
}
