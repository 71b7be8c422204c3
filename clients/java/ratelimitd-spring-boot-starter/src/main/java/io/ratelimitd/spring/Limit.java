package io.ratelimitd.spring;

import io.ratelimitd.Check;
import io.ratelimitd.Key;
import io.ratelimitd.Policy;
import java.util.List;
import java.util.Map;
import org.springframework.expression.spel.standard.SpelExpression;
import org.springframework.expression.spel.support.StandardEvaluationContext;

/**
 * One limit as it was declared, at a handler, a bean or a filter, with its expressions parsed.
 *
 * @param where      for messages: what it was declared at
 * @param endpoint   what inline limits are counted for
 * @param key        null: the default
 * @param skip       null: never
 * @param chargeWhen null: always
 */
record Limit(String where, String endpoint, Policy policy, SpelExpression key, SpelExpression cost, SpelExpression skip,
             OnError onError, SpelExpression chargeWhen, boolean slot, Headers headers) {

    /** The settings of an annotation or of a filter. */
    record Declared(String policy, long limit, String window, String key, String cost, String skip, OnError onError,
                    String chargeWhen, boolean slot, Headers headers) {
        static Declared of(RateLimit limit) {
            return new Declared(limit.policy(), limit.limit(), limit.window(), limit.key(), limit.cost(), limit.skip(),
                    limit.onError(), limit.chargeWhen(), limit.slot(), limit.headers());
        }
    }

    /** @throws IllegalStateException it cannot be meant so: the application must not start */
    static Limit of(Declared declared, String where, String endpoint, Expressions expressions) {
        boolean isInline = declared.limit() >= 0 || !declared.window().isEmpty();
        if (isInline != declared.policy().isEmpty())
            throw new IllegalStateException(where + ": a limit has either a policy, or a limit and a window");
        if (isInline && (declared.slot() || !declared.chargeWhen().isEmpty()))
            throw new IllegalStateException(where + ": slot and chargeWhen need a policy of the daemon's configuration");
        if (declared.slot() && !declared.chargeWhen().isEmpty())
            throw new IllegalStateException(where + ": a slot is not charged, so it has no chargeWhen");

        Policy policy;
        try {
            policy = isInline ? Policy.of(declared.limit(), declared.window()) : Policy.named(declared.policy());
        } catch (IllegalArgumentException e) {
            throw new IllegalStateException(where + ": " + e.getMessage(), e);
        }
        Expressions ofStatus = new Expressions(WebContext.class, List.of("status", "request"));
        return new Limit(where, endpoint, policy, parsed(declared.key(), expressions, where),
                parsed(declared.cost(), expressions, where), parsed(declared.skip(), expressions, where),
                declared.onError(), parsed(declared.chargeWhen(), ofStatus, where), declared.slot(),
                declared.headers());
    }

    private static SpelExpression parsed(String text, Expressions expressions, String where) {
        return text.isEmpty() ? null : expressions.parse(text, where);
    }

    /** null: this call is not limited. */
    Check check(CallContext context, Policies policies) {
        StandardEvaluationContext evaluation = context.evaluation();
        if (skip != null && Boolean.TRUE.equals(skip.getValue(evaluation, Boolean.class))) return null;

        Object value = key == null ? defaultKey(context, policies) : key.getValue(evaluation);
        if (value == null) return null;
        if (value.toString().isEmpty()) throw new IllegalStateException(where + ": the key is empty");
        String counted = policy.isInline() ? Key.join(endpoint) + "|" + value : value.toString();

        Long units = cost.getValue(evaluation, Long.class);
        if (units == null) throw new IllegalStateException(where + ": the cost is null");
        return Check.of(policy, counted, units);
    }

    private String defaultKey(CallContext context, Policies policies) {
        boolean isOfEndpoint = !policy.isInline() && policies.isOfEndpoint(policy.name());
        return isOfEndpoint ? context.address() + "-" + endpoint : context.address();
    }

    boolean isCharged(int status, CallContext context) {
        StandardEvaluationContext evaluation = context.evaluation();
        evaluation.setVariables(Map.of("status", status));
        return Boolean.TRUE.equals(chargeWhen.getValue(evaluation, Boolean.class));
    }
}
