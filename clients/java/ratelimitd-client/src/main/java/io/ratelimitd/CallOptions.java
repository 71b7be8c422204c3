package io.ratelimitd;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;

/** How one call is made. Immutable; start with {@link #DEFAULTS}. An option that a method does not have is refused. */
public final class CallOptions {
    public static final CallOptions DEFAULTS = new CallOptions(null, false, false, Map.of());

    private final Duration timeout;
    private final boolean resend;
    private final boolean clamp;
    private final Map<String, Object> wire; /* the daemon's options, by their names in the protocol */

    private CallOptions(Duration timeout, boolean resend, boolean clamp, Map<String, Object> wire) {
        this.timeout = timeout;
        this.resend = resend;
        this.clamp = clamp;
        this.wire = wire;
    }

    private CallOptions with(String name, Object value) {
        Map<String, Object> more = new LinkedHashMap<>(wire);
        more.put(name, value);
        return new CallOptions(timeout, resend, clamp, more);
    }

    /** How long the caller waits, connecting included; instead of the client's timeout. */
    public CallOptions timeout(Duration duration) {
        return new CallOptions(RateLimitClient.positive(duration), resend, clamp, wire);
    }

    /** The daemon answers within this time, if need be with the policy's failure answer. */
    public CallOptions deadline(Duration duration) {
        return with("deadline_ms", duration.toMillis());
    }

    /** The same policy, key and id are charged once within the policy's idempotency window. 1 to 64 bytes. */
    public CallOptions requestId(String id) {
        return with("request_id", id);
    }

    /** Makes a request id, and sends the call again if the connection is lost before its answer. */
    public CallOptions resend() {
        CallOptions options = wire.containsKey("request_id") ? this : requestId(UUID.randomUUID().toString());
        return new CallOptions(timeout, true, clamp, options.wire);
    }

    /** Grants as many units as are available, up to this number, in place of a cost. See {@link Decision#granted()}. */
    public CallOptions atMost(long units) {
        return with("at_most", units);
    }

    /** The longest {@link Decision#delayMs()} that is acceptable; zero: a denial in place of a delay. */
    public CallOptions maxWait(Duration duration) {
        return with("max_wait_ms", duration.toMillis());
    }

    /** A reservation that is not settled within this time gives its units back. The default is 60 seconds. */
    public CallOptions ttl(Duration duration) {
        return with("ttl_ms", duration.toMillis());
    }

    /**
     * Of a reservation: an estimate that the policy can never admit becomes the policy's capacity. See
     * {@link Decision#granted()}. Other methods do not look at it.
     */
    public CallOptions clamp() {
        return new CallOptions(timeout, resend, true, wire);
    }

    /** Without what a reservation alone has. */
    CallOptions ofCheck() {
        Map<String, Object> fewer = new LinkedHashMap<>(wire);
        fewer.remove("ttl_ms");
        return new CallOptions(timeout, resend, false, fewer);
    }

    /** null: the client's. */
    Duration timeout() {
        return timeout;
    }

    /** What is granted where the daemon leaves it out. */
    long asked(long cost) {
        return wire.get("at_most") instanceof Long units ? units : cost;
    }

    boolean resends() {
        return resend;
    }

    boolean clamps() {
        return clamp;
    }

    Map<String, Object> wire() {
        return wire;
    }
}
