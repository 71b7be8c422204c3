package io.ratelimitd.testing;

import io.ratelimitd.AllowAll;
import io.ratelimitd.RateLimitClient;
import io.ratelimitd.RefusedException;
import io.ratelimitd.Request;
import io.ratelimitd.UnavailableException;
import io.ratelimitd.UnavailableException.Kind;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;

/** A limiter without a daemon. It allows everything until the test changes that, and records what it was asked. */
public final class FakeLimiter extends AllowAll {
    private static final Set<Kind> MAYBE_CHARGED =
            EnumSet.of(Kind.TIMEOUT, Kind.LOST, Kind.PROTOCOL, Kind.STORE_UNAVAILABLE);

    private final Map<String, Long> retryAfterMs = new ConcurrentHashMap<>(); /* of the policies that deny */
    private final List<Asked> calls = new CopyOnWriteArrayList<>();
    private volatile Kind unavailable;
    private volatile String refused;

    /** @param cost of a check its cost, of a reserve its estimate, of an acquire 1 */
    public record Asked(String method, String policy, String key, long cost) {
    }

    /** A client that asks this limiter. */
    public RateLimitClient client() {
        return RateLimitClient.builder().transport(this).build();
    }

    /** As at the beginning; what was recorded stays. */
    public FakeLimiter allowAll() {
        retryAfterMs.clear();
        unavailable = null;
        refused = null;
        return this;
    }

    /** @param retryAfter null: never */
    public FakeLimiter deny(String policy, Duration retryAfter) {
        retryAfterMs.put(policy, retryAfter == null ? -1 : retryAfter.toMillis());
        return this;
    }

    /** From now on there is no answer. */
    public FakeLimiter unavailable(Kind kind) {
        unavailable = kind;
        return this;
    }

    /** From now on the daemon refuses every call with this code. */
    public FakeLimiter refuse(String code) {
        refused = code;
        return this;
    }

    /** What was asked, in order; each member of a check_all and check_many by itself. */
    public List<Asked> calls() {
        return List.copyOf(calls);
    }

    @Override
    protected Object answer(Request request) {
        Object answer = super.answer(request);
        failIfTold();
        return answer;
    }

    private void failIfTold() {
        if (refused != null) throw new RefusedException(refused, "the fake limiter refuses it");
        if (unavailable != null)
            throw new UnavailableException(unavailable, MAYBE_CHARGED.contains(unavailable),
                    "the fake limiter gives no answer");
    }

    @Override
    protected Map<String, Object> decide(String method, List<?> params) {
        String policy = params.get(0) instanceof Map<?, ?> settings
                ? Objects.toString(settings.get("name"), "inline") : (String) params.get(0);
        calls.add(new Asked(method, policy, text(params.get(1)), cost(params)));
        failIfTold();

        Long denied = retryAfterMs.get(policy);
        if (denied == null) return super.decide(method, params);
        Map<String, Object> decision = decision(false, denied);
        if (method.equals("check_all")) decision.put("bound_by", policy);
        return decision;
    }

    private static String text(Object key) {
        return key instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : (String) key;
    }

    private static long cost(List<?> params) {
        Object third = params.size() > 2 ? params.get(2) : null;
        if (third instanceof Map<?, ?> options) third = options.get("cost");
        return third instanceof Number number ? number.longValue() : 1;
    }
}
