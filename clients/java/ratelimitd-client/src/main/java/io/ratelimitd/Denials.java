package io.ratelimitd;

import java.time.Duration;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Denials that the client repeats by itself for a short time, so that a flood of one process does not reach the daemon. */
final class Denials {
    private static final int MAX = 1024;

    /** Equal questions get the same denial. */
    record Question(String method, List<Check> checks, Object maxWaitMs) {
    }

    private record Denial(Decision decision, long since, long until) {
    }

    private final long lastsNanos;
    private final Map<Question, Denial> kept = new LinkedHashMap<>(); /* the oldest first */

    Denials(Duration lasts) {
        lastsNanos = lasts.toNanos();
    }

    boolean isOff() {
        return lastsNanos == 0;
    }

    /** The denial as of now; null: ask the daemon. */
    synchronized Decision find(Question question) {
        Denial denial = kept.get(question);
        if (denial == null) return null;

        long now = Call.clock();
        if (now < denial.until) return denial.decision.later(TimeUnit.NANOSECONDS.toMillis(now - denial.since));
        kept.remove(question);
        return null;
    }

    /** @param since the time before the question was sent */
    synchronized void keep(Question question, Decision decision, long since) {
        if (decision.allowed() || "deny".equals(decision.source())) return; /* that of a failure is not certain */

        long retryMs = decision.retryAfterMs();
        long lasts = retryMs < 0 ? lastsNanos : Math.min(lastsNanos, TimeUnit.MILLISECONDS.toNanos(retryMs));
        kept.remove(question);
        if (kept.size() >= MAX) {
            Iterator<Question> oldest = kept.keySet().iterator();
            oldest.next();
            oldest.remove();
        }
        kept.put(question, new Denial(decision, since, since + lasts));
    }

    /** @param subject its policy may be one limit of a policy, as in `policy/limit` */
    synchronized void forget(Check subject) {
        kept.keySet().removeIf(question -> question.checks.stream().anyMatch(subject::concerns));
    }
}
