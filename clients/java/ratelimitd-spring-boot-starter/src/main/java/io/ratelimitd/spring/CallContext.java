package io.ratelimitd.spring;

import io.ratelimitd.Key;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.springframework.expression.spel.support.StandardEvaluationContext;

/** What expressions can use: the public properties and methods of this object, and the variables. */
public abstract class CallContext {
    private final String endpoint;
    private final StandardEvaluationContext evaluation = new StandardEvaluationContext(this);

    CallContext(String endpoint, Map<String, Object> variables) {
        this.endpoint = endpoint;
        evaluation.setVariables(variables);
    }

    /** What is limited: the route of a handler, the pattern of a filter, or the method of a bean. */
    public String getEndpoint() {
        return endpoint;
    }

    /** As a key or policy: no limit for this call. */
    public String getNOT_LIMITED() {
        return Key.NOT_LIMITED;
    }

    /** One key out of several parts; null, which is no key, if one of them is missing or empty. */
    public String join(String... parts) {
        return joined(Arrays.asList(parts));
    }

    static String joined(List<?> parts) {
        for (Object part : parts) if (part == null || part.toString().isEmpty() || part == Key.NOT_LIMITED) return null;
        return Key.join(parts.stream().map(Object::toString).toArray(String[]::new));
    }

    /** For secrets. */
    public String hashed(String secret) {
        return secret == null || secret.isEmpty() ? null : Key.hashed(secret);
    }

    /** `class-method`, as the preset endpoint-window has it. */
    String handler() {
        return endpoint;
    }

    /** The client's address. Only a request has one. */
    abstract String address();

    StandardEvaluationContext evaluation() {
        return evaluation;
    }
}
