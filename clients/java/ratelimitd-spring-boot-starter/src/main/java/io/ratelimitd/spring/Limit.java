package io.ratelimitd.spring;

import io.ratelimitd.Check;
import io.ratelimitd.Key;
import io.ratelimitd.Policy;
import io.ratelimitd.http.ServiceName;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.springframework.expression.spel.standard.SpelExpression;
import org.springframework.expression.spel.support.StandardEvaluationContext;

/**
 * One limit as it was declared, at a handler, a bean or a filter, with its expressions parsed.
 *
 * @param where      for messages: what it was declared at
 * @param endpoint   what limits with settings of their own are counted for
 * @param policy     null: only the call tells
 * @param settings   of the inline policy, besides limit and window
 * @param ofPolicy   the expression of the policy, ofLimit and ofWindow those of its settings; null: they are values
 * @param key        null: the default
 * @param skip       null: never
 * @param chargeWhen null: always
 */
record Limit(String where, String endpoint, Declared declared, Policy policy, Map<String, Object> settings,
             SpelExpression ofPolicy, SpelExpression ofLimit, SpelExpression ofWindow, SpelExpression key,
             SpelExpression cost, SpelExpression skip, SpelExpression chargeWhen) {
    private static final String EITHER = "a limit has either a policy, or a limit and a window";

    /** @throws InvalidLimitException it cannot be meant so: the application must not start */
    static Limit of(Declared declared, String where, String endpoint, Expressions expressions) {
        boolean isOfPolicy = !declared.policyExpression().isEmpty();
        long ways = Stream.of(declared.isInline(), isOfPolicy, !declared.policy().isEmpty()).filter(given -> given).count();
        if (ways != 1) throw new InvalidLimitException(where, EITHER);
        if (declared.limit() != null && !declared.limitExpression().isEmpty()
                || !declared.window().isEmpty() && !declared.windowExpression().isEmpty())
            throw new InvalidLimitException(where, "a limit or window is either a value or an expression");
        if (isOfPolicy && !declared.name().isEmpty())
            throw new InvalidLimitException(where, "name is for settings that are written here");
        if (declared.slot() && !declared.chargeWhen().isEmpty())
            throw new InvalidLimitException(where, "a slot is not charged, so it has no chargeWhen");

        SpelExpression ofLimit = parsed(declared.limitExpression(), expressions, where + ", limit", Number.class);
        SpelExpression ofWindow = parsed(declared.windowExpression(), expressions, where + ", window", String.class);
        Map<String, Object> settings = Inline.parsed(declared.settings());
        Policy policy;
        try {
            Inline.checkNames(settings);
            boolean isFixed = ofLimit == null && ofWindow == null;
            if (!isOfPolicy && !isFixed) /* would it be one with some numbers? */
                Inline.policy(ofLimit == null ? declared.limit() : Long.valueOf(1),
                        ofWindow == null ? declared.window() : "1s", settings, declared.name());
            policy = isOfPolicy || !isFixed ? null : policy(declared, settings);
        } catch (IllegalArgumentException e) {
            throw new InvalidLimitException(where, e);
        }
        return new Limit(where, endpoint, declared, policy, settings,
                parsed(declared.policyExpression(), expressions, where + ", policy", String.class), ofLimit, ofWindow,
                parsed(declared.key(), expressions, where + ", key", String.class),
                parsed(declared.cost(), expressions, where + ", cost", Number.class),
                parsed(declared.skip(), expressions, where + ", skip", Boolean.class),
                parsed(declared.chargeWhen(), expressions.with("status"), where + ", chargeWhen", Boolean.class));
    }

    private static SpelExpression parsed(String text, Expressions expressions, String where, Class<?> type) {
        return text.isEmpty() ? null : expressions.parse(text, where, type);
    }

    private static Policy policy(Declared declared, Map<String, Object> settings) {
        if (declared.policy().isEmpty())
            return Inline.policy(declared.limit(), declared.window(), settings, declared.name());
        Policy policy = Policy.read(declared.policy());
        return declared.name().isEmpty() ? policy : policy.withName(declared.name());
    }

    /** For messages. */
    String name() {
        return policy == null ? declared.name().isEmpty() ? "a limit by the request" : declared.name() : policy.name();
    }

    boolean slot() {
        return declared.slot();
    }

    OnError onError() {
        return declared.onError();
    }

    Headers headers() {
        return declared.headers();
    }

    /** May it send settings of its own? What an expression gives is not known before the call. */
    boolean isInline() {
        return policy == null ? ofPolicy == null : policy.isInline();
    }

    /** Its key depends on what the daemon's configuration has. */
    boolean asksForPolicies() {
        return key == null && !isInline();
    }

    /** Do its numbers depend on the call? Then its counter is that of its id. */
    boolean mayMove() {
        return ofLimit != null || ofPolicy != null;
    }

    boolean isWritten() {
        return !declared.endpoint().isEmpty();
    }

    /** Names of the path's variables that its expressions read. */
    List<String> pathNames() {
        return Stream.of(ofPolicy, ofLimit, ofWindow, key, cost, skip, chargeWhen).filter(expression -> expression != null)
                .flatMap(expression -> Expressions.pathNames(expression).stream()).toList();
    }

    /** Does it read the parameters, of a form too? */
    boolean readsParameters() {
        return Stream.of(ofPolicy, ofLimit, ofWindow, key, cost, skip, chargeWhen)
                .anyMatch(expression -> Expressions.calls(expression, "param"));
    }

    /**
     * null: this call is not limited.
     *
     * @param place of a limit that may move, among those of its request and endpoint
     * @throws MissingKeyException the call has no key, or no policy
     */
    Check check(CallContext context, Policies policies, int place) {
        StandardEvaluationContext evaluation = context.evaluation();
        if (skip != null && Boolean.TRUE.equals(skip.getValue(evaluation, Boolean.class))) return null;

        Policy chosen = policy != null ? policy : chosen(evaluation);
        if (chosen == null) return null;
        if (mayMove()) chosen = chosen.withId(place > 1 ? endpoint + "#" + place : endpoint);
        Object value = key == null ? defaultKey(chosen, context, policies) : key.getValue(evaluation);
        if (value == Key.NOT_LIMITED) return null;
        if (value instanceof List<?> parts && parts.contains(Key.NOT_LIMITED)) throw new IllegalStateException(where
                + ": NOT_LIMITED is a key, not a part of one");

        Long units = cost.getValue(evaluation, Long.class);
        if (units == null || units < 0) throw new IllegalStateException(where + ": the cost is " + units);
        return check(chosen, value, units, policies.service());
    }

    /** What is counted: settings of its own have the service and the endpoint in front. */
    Check check(Policy chosen, Object value, long units, ServiceName service) {
        String before = chosen.isInline() ? service.before(endpoint) : "";
        if (value instanceof byte[] bytes && bytes.length > 0) return Check.of(chosen, joined(before, bytes), units);

        String text = value instanceof byte[] || value == null ? null : value instanceof List<?> parts
                ? CallContext.joined(parts) : value.toString();
        if (text == null || text.isEmpty()) throw new MissingKeyException("key", this);
        return Check.of(chosen, before + text, units);
    }

    private static byte[] joined(String before, byte[] key) {
        byte[] front = before.getBytes(StandardCharsets.UTF_8);
        byte[] whole = new byte[front.length + key.length];
        System.arraycopy(front, 0, whole, 0, front.length);
        System.arraycopy(key, 0, whole, front.length, key.length);
        return whole;
    }

    /** What the expressions give for this call. null: it is not limited. */
    private Policy chosen(StandardEvaluationContext evaluation) {
        try {
            if (ofPolicy == null) {
                Long limit = ofLimit == null ? declared.limit() : ofLimit.getValue(evaluation, Long.class);
                String window = ofWindow == null ? declared.window() : ofWindow.getValue(evaluation, String.class);
                return Inline.policy(limit, window == null ? "" : window, settings, declared.name());
            }
            Object given = ofPolicy.getValue(evaluation);
            if (given == Key.NOT_LIMITED) return null;
            if (given == null || given.toString().isEmpty()) throw new MissingKeyException("policy", this);
            return given instanceof Policy settings ? settings : Policy.read(given.toString());
        } catch (IllegalArgumentException e) {
            throw new IllegalStateException(where + ": " + e.getMessage(), e);
        }
    }

    private String defaultKey(Policy chosen, CallContext context, Policies policies) {
        boolean isOfEndpoint = !chosen.isInline() && policies.isOfEndpoint(chosen.name());
        return isOfEndpoint ? context.address() + "-" + context.handler() : context.address();
    }

    /** What it charges in the end: the cost or nothing, or the number that chargeWhen gives. */
    long units(int status, long cost, CallContext context) {
        StandardEvaluationContext evaluation = context.evaluation();
        evaluation.setVariables(Map.of("status", status));
        Object value = chargeWhen.getValue(evaluation);
        if (value instanceof Number number) return Math.max(0, number.longValue());
        if (value != null && !(value instanceof Boolean))
            throw new IllegalStateException("it gives neither true, false nor a number");
        return Boolean.TRUE.equals(value) ? cost : 0;
    }
}
