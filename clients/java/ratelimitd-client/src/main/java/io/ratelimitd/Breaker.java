package io.ratelimitd;

import java.util.concurrent.TimeUnit;

/** After three timeouts in a row, calls fail at once for a second; then one call is tried. One thread uses it. */
final class Breaker {
    private static final int TIMEOUTS = 3;
    private static final long OPEN_NANOS = TimeUnit.SECONDS.toNanos(1);

    private int timeouts;
    private long openUntil;
    private boolean probing;

    boolean isOpen() {
        return timeouts >= TIMEOUTS;
    }

    /** It is open: may this call be tried? Then it is the one probe, and ends as one of the following. */
    boolean admits(long now) {
        if (probing || now - openUntil < 0) return false;
        probing = true;
        return true;
    }

    void answered() {
        timeouts = 0;
        probing = false;
    }

    void timedOut(long now) {
        timeouts++;
        probing = false;
        if (isOpen()) openUntil = now + OPEN_NANOS;
    }

    /** The probe ended without showing anything: the next call is another one. */
    void unknown() {
        probing = false;
    }
}
