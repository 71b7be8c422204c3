package io.ratelimitd;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A slot of a concurrency limit. It is held until {@link #close}, or until the connection to the daemon is lost: then
 * {@link #isLost} is true, and somebody else may take it. Any thread may release it.
 */
public final class Slot implements AutoCloseable {
    private enum State { HELD, RELEASED, LOST, DENIED }

    private final RateLimitClient client;
    private final Decision decision;
    private final Link link;
    private final AtomicReference<State> state;
    private final CompletableFuture<Slot> lost = new CompletableFuture<>();

    Slot(RateLimitClient client, Decision decision, Link link) {
        this.client = client;
        this.decision = decision;
        this.link = link;
        state = new AtomicReference<>(decision.allowed() ? State.HELD : State.DENIED);
    }

    public Decision decision() {
        return decision;
    }

    /** False if the acquire was denied, after the release, and after the loss. */
    public boolean isHeld() {
        return state.get() == State.HELD;
    }

    public boolean isLost() {
        return state.get() == State.LOST;
    }

    /** Completed when the slot is lost; never if it is released first. Not on the client's own thread. */
    public CompletableFuture<Slot> whenLost() {
        return lost;
    }

    /** True: the daemon has freed it. False: it was not held any more. */
    public boolean release() {
        return state.compareAndSet(State.HELD, State.RELEASED) && client.now(client.release(this));
    }

    public CompletableFuture<Boolean> releaseAsync() {
        if (!state.compareAndSet(State.HELD, State.RELEASED)) return CompletableFuture.completedFuture(false);
        return client.later(client.release(this));
    }

    /** Releases it, and throws nothing: a daemon that cannot be asked now learns of it with the connection. */
    @Override
    public void close() {
        if (state.compareAndSet(State.HELD, State.RELEASED)) client.forget(client.release(this));
    }

    String id() {
        return decision.slot();
    }

    Link link() {
        return link;
    }

    void markLost() {
        if (state.compareAndSet(State.HELD, State.LOST)) lost.completeAsync(() -> this, client.executor());
    }
}
