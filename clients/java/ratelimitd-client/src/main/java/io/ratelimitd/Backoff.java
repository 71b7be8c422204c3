package io.ratelimitd;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** When to connect again after a failure: 10 ms, doubling up to 250 ms, of each a random half to the whole. */
final class Backoff {
    private static final long FIRST_NANOS = TimeUnit.MILLISECONDS.toNanos(10);
    private static final long LONGEST_NANOS = TimeUnit.MILLISECONDS.toNanos(250);

    private long pauseNanos;
    private long until;

    boolean isWaiting(long now) {
        return pauseNanos != 0 && now - until < 0;
    }

    void failed(long now) {
        pauseNanos = pauseNanos == 0 ? FIRST_NANOS : Math.min(2 * pauseNanos, LONGEST_NANOS);
        until = now + ThreadLocalRandom.current().nextLong(pauseNanos / 2, pauseNanos + 1);
    }

    void connected() {
        pauseNanos = 0;
    }
}
