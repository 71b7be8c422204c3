package io.ratelimitd.http;

import io.ratelimitd.Decision;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;

/**
 * A decision as HTTP, as docs/http.md of ratelimitd has it.
 *
 * @param status  of the answer that the limiter gives itself; 0: the request goes on, and the application answers
 * @param headers in their order; each is added to a field of that name (`old, new`)
 * @param body    empty if the request goes on
 */
public record HttpAnswer(int status, Map<String, String> headers, String body) {
    private static final String PROBLEMS = "https://iana.org/assignments/http-problem-types#";

    /**
     * @param isSlot the decision is that of an acquire: a slot comes back when somebody is done, so there is no
     *               Retry-After
     * @param accept the request's field; null: it has none
     * @param nowMs  the time of day, for {@link HeaderStyle.Reset#EPOCH}
     */
    public static HttpAnswer of(Decision decision, boolean isSlot, HeaderStyle style, String accept, long nowMs) {
        if (!decision.allowed() && "deny".equals(decision.source())) return unavailable(accept);

        Map<String, String> headers = new LinkedHashMap<>();
        List<Decision> reported = (decision.members().isEmpty() ? List.of(decision) : decision.members()).stream()
                .filter(HttpAnswer::isReported).toList();
        if (style.hasIetf() && !reported.isEmpty()) {
            headers.put("RateLimit-Policy", reported.stream().map(HttpAnswer::policy).collect(Collectors.joining(", ")));
            headers.put("RateLimit", reported.stream().map(HttpAnswer::state).collect(Collectors.joining(", ")));
        }

        if (style.hasLegacy() && isReported(decision)) {
            headers.put("X-RateLimit-Limit", Long.toString(decision.limit()));
            headers.put("X-RateLimit-Remaining", Long.toString(decision.remaining()));
            long waitMs = waitMs(decision);
            if (waitMs >= 0)
                headers.put("X-RateLimit-Reset", Long.toString(
                        seconds(style.reset() == HeaderStyle.Reset.EPOCH ? nowMs + waitMs : waitMs)));
        }

        boolean hasRetry = !decision.allowed() && decision.retryAfterMs() >= 0 && !isSlot && decision.windowMs() != 0;
        long retrySeconds = Math.max(1, seconds(decision.retryAfterMs()));
        if (hasRetry) headers.put("Retry-After", Long.toString(retrySeconds));
        if (decision.allowed()) return new HttpAnswer(0, headers, "");

        String name = decision.boundBy() != null ? decision.boundBy() : decision.of();
        String more = name == null ? "" : ",\"violated-policies\":[" + json(name) + "]";
        String text = hasRetry ? "Too many requests: try again in " + retrySeconds + " s." : "Too many requests.";
        return problem(429, headers, accept, "quota-exceeded", "Quota exceeded", more, text);
    }

    /** The daemon gave no answer, and the limit denies then. */
    public static HttpAnswer unavailable(String accept) {
        Map<String, String> headers = new LinkedHashMap<>(Map.of("Retry-After", "1"));
        return problem(503, headers, accept, "temporary-reduced-capacity", "Temporary reduced capacity", "",
                "Temporary reduced capacity: try again in 1 s.");
    }

    private static HttpAnswer problem(int status, Map<String, String> headers, String accept, String type,
                                      String title, String more, String text) {
        boolean json = takesJson(accept);
        headers.put("Content-Type", json ? "application/problem+json" : "text/plain; charset=utf-8");
        return new HttpAnswer(status, headers, !json ? text + "\n" : "{\"type\":\"" + PROBLEMS + type + "\",\"title\":\""
                + title + "\",\"status\":" + status + more + "}");
    }

    private static String json(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') quoted.append('\\').append(c);
            else if (c < ' ') quoted.append(String.format("\\u%04x", (int) c));
            else quoted.append(c);
        }
        return quoted.append('"').toString();
    }

    /** Somebody counted, the figures are meant for the caller, and the limit's name can stand in a field. */
    private static boolean isReported(Decision decision) {
        return decision.of() != null && !decision.shadowDenied() && decision.of().chars().allMatch(c -> c >= ' ' && c <= '~');
    }

    /** A string of structured fields. */
    private static String name(Decision decision) {
        return '"' + decision.of().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    private static String policy(Decision decision) {
        return name(decision) + ";q=" + decision.quota()
                + (decision.windowMs() > 0 ? ";w=" + seconds(decision.windowMs()) : ";qu=\"concurrent-requests\"")
                + (decision.limit() > decision.quota() ? ";ratelimitd-burst=" + decision.limit() : "");
    }

    private static String state(Decision decision) {
        long waitMs = waitMs(decision);
        return name(decision) + ";r=" + decision.remaining() + (waitMs < 0 ? "" : ";t=" + seconds(waitMs));
    }

    /** Until there is more of the limit in `of`; -1: it is not known. */
    private static long waitMs(Decision decision) {
        if (decision.windowMs() == 0) return -1;
        return decision.allowed() ? decision.ofResetMs() : decision.retryAfterMs();
    }

    private static long seconds(long ms) {
        return Math.floorDiv(ms + 999, 1000L);
    }

    private static boolean takesJson(String accept) {
        if (accept == null || accept.isBlank()) return true;

        for (String range : accept.toLowerCase(Locale.ROOT).split(",")) {
            List<String> parts = new ArrayList<>(List.of(range.split(";")));
            String type = parts.remove(0).strip();
            boolean refused = parts.stream().map(part -> part.replaceAll("\\s", ""))
                    .anyMatch(part -> part.matches("q=0(\\.0*)?"));
            if (refused) continue;
            if (List.of("*/*", "application/*", "application/json").contains(type) || type.endsWith("+json")) return true;
        }
        return false;
    }
}
