package io.ratelimitd;

import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** One call on its way. All but the future itself belongs to the transport's thread. */
final class Call extends CompletableFuture<Transport.Answer> {
    private static final Duration LONGEST = Duration.ofDays(365); /* so that no sum of nanoseconds overflows */

    private static final long BASE = System.nanoTime();

    private static final Set<String> NEWS = Set.of("name", "id");

    final Request request;
    private final boolean hasNews; /* settings of inline policies that only some daemons take */
    byte[] message; /* as the connection's daemon takes it; its msgid is set when it is queued */
    final long begunAt;
    final long deadline;
    final boolean isOurs; /* hello, and what undoes a late yes: no caller waits for it */

    long sentFrom = -1;       /* its first byte's place in the connection's stream; -1: still in the queue */
    boolean hasLeft;          /* on some connection: it may have been charged */
    boolean wasRequeued;
    boolean isProbe;
    boolean isOrphan; /* it has timed out, but a late yes must still be undone */

    Call(Request request, boolean isOurs) {
        this.request = request;
        this.isOurs = isOurs;
        Request plain = request.without(NEWS);
        hasNews = plain != request;
        message = Wire.pack(plain);
        this.begunAt = clock();
        Duration timeout = request.timeout().compareTo(LONGEST) > 0 ? LONGEST : request.timeout();
        deadline = begunAt + timeout.toNanos();
    }

    private Call(byte[] notification) {
        request = null;
        isOurs = true;
        message = notification;
        hasNews = false;
        begunAt = deadline = 0;
    }

    /** Not a call: the notification that the one of this msgid was given up. It has no answer. */
    static Call abandoning(long msgid) {
        return new Call(Wire.packAbandon(msgid));
    }

    /** @param features of the daemon; each of these settings has the name of its feature */
    void number(long msgid, Set<String> features) {
        if (hasNews) {
            Set<String> unknown = new HashSet<>(NEWS);
            unknown.removeAll(features);
            message = Wire.pack(request.without(unknown));
        }
        Wire.setMsgid(message, msgid);
    }

    /** Must it go out, even if no caller waits for its answer? */
    boolean isOwed() {
        return request != null && request.givesBack();
    }

    /** Nanoseconds since this class was loaded: they never overflow, so they can be compared. */
    static long clock() {
        return System.nanoTime() - BASE;
    }

    void fail(UnavailableException.Kind kind, boolean maybeCharged, String code, String what, Throwable cause) {
        completeExceptionally(new UnavailableException(kind, maybeCharged, code, request.method() + ": " + what, cause));
    }

    long elapsedMs(long now) {
        return TimeUnit.NANOSECONDS.toMillis(now - begunAt);
    }
}
