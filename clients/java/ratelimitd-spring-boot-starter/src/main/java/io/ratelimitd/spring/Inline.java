package io.ratelimitd.spring;

import io.ratelimitd.Policy;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The settings of limits that are written in the program, as far as a mistake in them can be seen here. */
final class Inline {
    /** Of ratelimitd.yaml(5), besides limit, window and name. */
    private static final List<String> SETTINGS = List.of("algorithm", "anchor", "burst", "compat", "count_denied", "counts", "deadline", "debt",
            "idempotency_window", "key_format", "key_prefix", "lease", "local_share", "max_wait", "merge_back", "on_change", "on_failure",
            "penalty", "phase", "shadow", "slot_ttl", "start", "timezone", "unlimited", "warn_at", "week_start");
    private static final List<String> OF_THEIR_OWN = List.of("limit", "window", "name");

    private Inline() {
    }

    /** Each a number, true, false or text, as YAML would read it. `penalty.time` is the entry `time` of `penalty`. */
    static Map<String, Object> parsed(Map<String, String> settings) {
        Map<String, Object> values = new LinkedHashMap<>();
        Map<String, Object> penalty = new LinkedHashMap<>();
        settings.forEach((name, text) -> {
            Object value = text.matches("[0-9]{1,16}") ? (Object) Long.parseLong(text)
                    : text.matches("true|false") ? (Object) Boolean.parseBoolean(text) : text;
            if (name.startsWith("penalty.")) penalty.put(name.substring("penalty.".length()), value);
            else values.put(name, value);
        });
        if (!penalty.isEmpty()) values.put("penalty", penalty);
        return values;
    }

    /** @throws IllegalArgumentException one has no such name */
    static void checkNames(Map<String, ?> settings) {
        for (String name : settings.keySet()) {
            if (OF_THEIR_OWN.contains(name))
                throw new IllegalArgumentException("`" + name + "` is an option of its own, not one of `settings`");
            if (!SETTINGS.contains(name))
                throw new IllegalArgumentException("a policy has no setting `" + name + "`; there are "
                        + String.join(", ", SETTINGS));
        }
    }

    /**
     * @param limit  null: not given
     * @param window empty: not given
     * @param name   empty: none
     * @throws IllegalArgumentException the daemon would refuse it
     */
    static Policy policy(Long limit, String window, Map<String, Object> settings, String name) {
        Map<String, Object> all = new LinkedHashMap<>();
        Object algorithm = settings.get("algorithm");
        boolean isCounted = limit != null && !window.isEmpty();
        if (limit != null && (limit < 0 || limit > (1L << 53) - 1))
            throw new IllegalArgumentException("limit is a whole number from 0, not " + limit);
        if (!window.isEmpty() && !"calendar_window".equals(algorithm)) window = window(window);

        if (algorithm == null && isCounted) all.putAll(Policy.of(limit, window).settings());
        else if (algorithm == null && !settings.containsKey("compat"))
            throw new IllegalArgumentException("a limit needs a window, and a window needs a limit, such as limit 10 and"
                    + " window 5s");
        if (limit != null) all.put("limit", limit);
        if (!window.isEmpty()) all.put("window", window);
        all.putAll(settings);
        if (!name.isEmpty()) all.put("name", name);
        return Policy.inline(all);
    }

    /** 5s for `5 seconds`. */
    private static String window(String text) {
        try {
            return (String) Policy.parse("1/" + text).settings().get("window");
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("window is a number and its unit (ms, s, m, h, d), such as 5s: not `" + text
                    + "`", e);
        }
    }
}
