package io.ratelimitd;

import io.ratelimitd.UnavailableException.Kind;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;

/** What a client has seen since it was opened: check, check_all, acquire, reserve, and each member of check_many. */
public final class Counters {
    private final LongAdder allowed = new LongAdder();
    private final LongAdder denied = new LongAdder();
    private final LongAdder remembered = new LongAdder();
    private final LongAdder refused = new LongAdder();
    private final Map<Kind, LongAdder> unavailable = new EnumMap<>(Kind.class);

    Counters() {
        for (Kind kind : Kind.values()) unavailable.put(kind, new LongAdder());
    }

    /** Of all ends together. */
    public long checks() {
        long failed = unavailable.values().stream().mapToLong(LongAdder::sum).sum();
        return allowed() + denied() + refused() + failed;
    }

    public long allowed() {
        return allowed.sum();
    }

    public long denied() {
        return denied.sum();
    }

    /** Of the denied ones, those that {@link RateLimitClient.Builder#rememberDenials} has repeated. */
    public long remembered() {
        return remembered.sum();
    }

    public long refused() {
        return refused.sum();
    }

    public long unavailable(Kind kind) {
        return unavailable.get(kind).sum();
    }

    void count(Decision decision) {
        (decision.allowed() ? allowed : denied).increment();
    }

    void countRemembered() {
        remembered.increment();
    }

    void count(RateLimitException error) {
        if (error instanceof UnavailableException gone) unavailable.get(gone.kind()).increment();
        else refused.increment();
    }
}
