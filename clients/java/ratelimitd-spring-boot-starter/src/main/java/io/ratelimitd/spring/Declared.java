package io.ratelimitd.spring;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What an annotation or a filter says about a limit, as it is written there. Empty: it is not given.
 *
 * @param limit    null: not given
 * @param settings of an inline policy, by their names in ratelimitd.yaml
 */
record Declared(String policy, String policyExpression, Long limit, String limitExpression, String window,
                String windowExpression, Map<String, String> settings, String name, String key, String cost, String skip,
                OnError onError, String chargeWhen, boolean slot, Headers headers, String endpoint) {
    static Declared of(RateLimit limit, String where) {
        Map<String, String> settings = new LinkedHashMap<>();
        for (String setting : limit.settings()) {
            String[] parts = setting.split("=", 2);
            if (parts.length < 2)
                throw new InvalidLimitException(where, "settings: write `" + setting + "` as \"name=value\"");
            settings.put(parts[0].strip(), parts[1].strip());
        }
        return new Declared(limit.policy(), limit.policyExpression(), limit.limit() == -1 ? null : limit.limit(),
                limit.limitExpression(), limit.window(), limit.windowExpression(), settings, limit.name(), limit.key(),
                limit.cost(), limit.skip(), limit.onError(), limit.chargeWhen(), limit.slot(), limit.headers(),
                limit.endpoint());
    }

    boolean isInline() {
        return hasLimit() || hasWindow() || !settings.isEmpty();
    }

    boolean hasLimit() {
        return limit != null || !limitExpression.isEmpty();
    }

    boolean hasWindow() {
        return !window.isEmpty() || !windowExpression.isEmpty();
    }
}
