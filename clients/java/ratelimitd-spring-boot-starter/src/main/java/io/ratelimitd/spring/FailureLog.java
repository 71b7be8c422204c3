package io.ratelimitd.spring;

import io.ratelimitd.UnavailableException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;

/** Logs that the daemon gives no answers, and what follows, with at most one line in ten seconds. */
final class FailureLog {
    private static final Log LOG = LogFactory.getLog(FailureLog.class);
    private static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(10);

    private final AtomicLong nextAt = new AtomicLong(System.nanoTime());
    private final AtomicLong unreported = new AtomicLong();

    void failed(UnavailableException error, boolean denies) {
        long now = System.nanoTime();
        long next = nextAt.get();
        if (now - next < 0 || !nextAt.compareAndSet(next, now + PAUSE_NANOS)) {
            unreported.incrementAndGet();
            return;
        }
        long more = unreported.getAndSet(0);
        LOG.warn("no answer from ratelimitd (" + error.kind().text() + "), so "
                + (denies ? "requests are answered 503" : "requests pass") + ": " + error.getMessage()
                + (more == 0 ? "" : "; and " + more + " more since the last such line"));
    }
}
