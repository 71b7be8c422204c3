package io.ratelimitd.http;

import io.ratelimitd.Key;
import java.util.List;
import java.util.Map;

/**
 * The service in front of the keys of limits that are written at an endpoint: equal settings share their counters, so
 * endpoints of one name in different services would.
 *
 * @param name empty: there is none
 * @param from where the name comes from, for the log
 */
public record ServiceName(String name, String from) {
    /**
     * @param option  the setting of the limiter; null: not given
     * @param env     the environment
     * @param own     the framework's name for the application; null or empty: none
     * @param ownFrom its setting there
     */
    public static ServiceName of(String option, Map<String, String> env, String own, String ownFrom) {
        if (option != null) return new ServiceName(option, "ratelimitd.service");
        for (String variable : new String[] {"RATELIMIT_SERVICE", "OTEL_SERVICE_NAME"})
            if (env.get(variable) != null) return new ServiceName(env.get(variable), "$" + variable);
        return own == null || own.isEmpty() ? new ServiceName("", "") : new ServiceName(own, ownFrom);
    }

    /** Many services have this name, or none is given: they share counters on one daemon. */
    public boolean isCommon() {
        return List.of("", "app", "main", "__main__", "FastAPI").contains(name);
    }

    /** What stands in front of the keys of an endpoint. */
    public String before(String endpoint) {
        return (name.isEmpty() ? Key.join(endpoint) : Key.join(name, endpoint)) + "|";
    }
}
