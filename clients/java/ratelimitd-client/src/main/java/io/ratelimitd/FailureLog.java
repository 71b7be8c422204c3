package io.ratelimitd;

import java.lang.System.Logger.Level;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Logs that the daemon gives no answers, with at most one line in ten seconds. */
final class FailureLog {
    private static final System.Logger LOGGER = System.getLogger(RateLimitClient.class.getName());
    private static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(10);

    private final String socket;
    private final AtomicLong nextAt = new AtomicLong(System.nanoTime());
    private final AtomicLong unsaid = new AtomicLong();

    FailureLog(String socket) {
        this.socket = socket;
    }

    void failed(UnavailableException error) {
        long now = System.nanoTime();
        long next = nextAt.get();
        if (now - next < 0 || !nextAt.compareAndSet(next, now + PAUSE_NANOS)) {
            unsaid.incrementAndGet();
            return;
        }
        long more = unsaid.getAndSet(0);
        LOGGER.log(Level.WARNING, "no answer from ratelimitd at " + socket + " (" + error.kind().text() + "): "
                + error.getMessage() + (more == 0 ? "" : "; and " + more + " more since the last such line"));
    }
}
