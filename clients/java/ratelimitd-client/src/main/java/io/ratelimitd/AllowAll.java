package io.ratelimitd;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/** Answers every call at once as an unlimited policy would, and asks no daemon. */
public class AllowAll implements Transport {
    private static final long NO_LIMIT = (1L << 53) - 1;
    private final AtomicLong ids = new AtomicLong();
    private final Link link = new Link();

    @Override
    public CompletableFuture<Answer> call(Request request) {
        try {
            return CompletableFuture.completedFuture(new Answer(answer(request), link));
        } catch (RateLimitException e) {
            return CompletableFuture.failedFuture(e);
        }
    }

    /** @throws RateLimitException in place of an answer */
    protected Object answer(Request request) {
        List<Object> params = request.params();
        switch (request.method()) {
            case "check", "peek", "explain", "refund", "acquire", "reserve":
                return decide(request.method(), params);
            case "check_many":
                return ((List<?>) params.get(0)).stream().map(item -> decide("check_many", (List<?>) item)).toList();
            case "check_all":
                return decideAll((List<?>) params.get(0));
            case "settle", "cancel":
                return decision(true, 0);
            case "reset":
                return Map.of("removed", false);
            case "release":
                return Map.of("released", true);
            case "policies":
                return List.of();
            case "stats":
                return Map.of();
            case "ping":
                return "pong";
            default:
                throw new RefusedException("UNKNOWN_METHOD", "there is no method " + request.method());
        }
    }

    /** One check. @param params policy, key, and a cost or options */
    protected Map<String, Object> decide(String method, List<?> params) {
        Map<String, Object> decision = decision(true, 0);
        if (method.equals("acquire")) decision.put("slot", String.format("%032d", ids.incrementAndGet()));
        if (method.equals("reserve")) decision.put("reservation", "r" + ids.incrementAndGet());
        return decision;
    }

    private Map<String, Object> decideAll(List<?> items) {
        List<Map<String, Object>> members = items.stream().map(item -> decide("check_all", (List<?>) item)).toList();
        Map<String, Object> worst = members.get(0);
        for (Map<String, Object> member : members)
            if (!Boolean.TRUE.equals(member.get("allowed"))) worst = member;
        Map<String, Object> combined = new HashMap<>(worst);
        combined.put("members", members);
        return combined;
    }

    /** A decision's fields. @param retryAfterMs of a denial; -1: never */
    protected static Map<String, Object> decision(boolean allowed, long retryAfterMs) {
        Map<String, Object> fields = new HashMap<>();
        fields.put("allowed", allowed);
        fields.put("limit", NO_LIMIT);
        fields.put("remaining", allowed ? NO_LIMIT : 0L);
        fields.put("retry_after_ms", allowed ? 0L : retryAfterMs);
        fields.put("reset_after_ms", allowed ? 0L : Math.max(0, retryAfterMs));
        fields.put("source", allowed ? "unlimited" : "memory");
        fields.put("policy_version", 0L);
        return fields;
    }

    @Override
    public Set<String> features() {
        return Set.of("name", "id", "reserve_inline");
    }

    @Override
    public int pending() {
        return 0;
    }

    @Override
    public void close() {
        link.lose();
    }
}
