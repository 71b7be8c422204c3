package io.ratelimitd.spring;

import io.ratelimitd.Key;
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

    /** What is limited: `class-method`, or the pattern of a filter. */
    public String getEndpoint() {
        return endpoint;
    }

    /** One key out of several parts; null if one of them is null. */
    public String join(String... parts) {
        for (String part : parts) if (part == null) return null;
        return Key.join(parts);
    }

    /** For secrets. */
    public String hashed(String secret) {
        return secret == null ? null : Key.hashed(secret);
    }

    /** The client's address. Only a request has one. */
    abstract String address();

    StandardEvaluationContext evaluation() {
        return evaluation;
    }
}
