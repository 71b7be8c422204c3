package io.ratelimitd;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The daemon's answer to a check. A value: a denial is not an exception. Durations are relative, never negative. */
public final class Decision {
    private static final long LARGEST = (1L << 53) - 1;
    private static final Pattern GENERATED = Pattern.compile("inline-[0-9a-f]{16}(?=/|$)");

    private final Map<?, ?> fields;
    private final boolean allowed;
    private final long cost;
    private final List<Decision> members;

    private Decision(Map<?, ?> fields, boolean allowed, long cost, List<Decision> members) {
        this.fields = fields;
        this.allowed = allowed;
        this.cost = cost;
        this.members = members;
    }

    /**
     * A decision out of the fields of an answer, as PROTOCOL.md names them. Unknown fields are ignored.
     *
     * @param cost what was asked for: it is `granted` where the daemon leaves that out
     * @throws UnavailableException of kind PROTOCOL if a field is missing or has another type
     */
    public static Decision of(Object answer, long cost) {
        if (!(answer instanceof Map<?, ?> fields)) throw invalid("a decision that is not a map");
        if (!(fields.get("allowed") instanceof Boolean allowed)) throw invalid("a decision without `allowed`");

        for (String name : List.of("limit", "remaining", "retry_after_ms", "reset_after_ms", "policy_version"))
            if (!isNumber(fields.get(name), name)) throw invalid("a decision without the number `" + name + "`");
        for (String name : List.of("delay_ms", "granted", "quota", "window_ms", "of_reset_ms", "refunded", "charged"))
            if (fields.get(name) != null && !isNumber(fields.get(name), name))
                throw invalid("a decision whose `" + name + "` is not a number of the protocol");
        for (String name : List.of("bound_by", "reason", "of", "slot", "reservation"))
            if (fields.get(name) != null && Wire.text(fields.get(name)) == null)
                throw invalid("a decision whose `" + name + "` is not a text");
        for (String name : List.of("slot", "reservation"))
            if (fields.get(name) != null && Wire.text(fields.get(name)).isEmpty())
                throw invalid("a decision whose `" + name + "` is empty");
        if (Wire.text(fields.get("source")) == null) throw invalid("a decision without `source`");
        return new Decision(fields, allowed, cost, List.of());
    }

    private static boolean isNumber(Object value, String name) {
        return value instanceof Long number && number >= (name.equals("retry_after_ms") ? -1 : 0) && number <= LARGEST;
    }

    /** The members of a check_all or check_many, one for each check. */
    static List<Decision> listOf(Object answer, List<Check> checks) {
        if (!(answer instanceof List<?> list) || list.size() != checks.size())
            throw invalid("not one decision for each member");
        List<Decision> decisions = new ArrayList<>(list.size());
        for (int i = 0; i < list.size(); i++) decisions.add(of(list.get(i), checks.get(i).cost()));
        return List.copyOf(decisions);
    }

    static Decision ofAll(Object answer, List<Check> checks) {
        Decision combined = of(answer, checks.stream().mapToLong(Check::cost).sum());
        return combined.with(listOf(combined.fields.get("members"), checks));
    }

    /** This decision as the combined one of these. */
    public Decision with(List<Decision> decisions) {
        return new Decision(fields, allowed, cost, List.copyOf(decisions));
    }

    /** With the names of inline policies in place of those that the daemon has made of their settings. */
    Decision named(List<Check> checks) {
        Map<String, String> names = new HashMap<>();
        for (int i = 0; i < checks.size(); i++) {
            String name = checks.get(i).policy().givenName();
            Decision about = members.isEmpty() ? this : members.get(i);
            for (String text : new String[] {about.of(), about.boundBy()}) {
                String generated = name == null ? null : generated(text);
                if (generated != null) names.put(generated, name);
            }
        }
        return names.isEmpty() ? this : named(names);
    }

    private Decision named(Map<String, String> names) {
        return changed(members.stream().map(member -> member.named(names)).toList(), (name, values) -> {
            String generated = generated(text(name));
            if (names.containsKey(generated))
                values.put(name, names.get(generated) + text(name).substring(generated.length()));
        }, "of", "bound_by");
    }

    private static String generated(String text) {
        Matcher matcher = GENERATED.matcher(text == null ? "" : text);
        return matcher.lookingAt() ? matcher.group() : null;
    }

    /** A denial as the client repeats it after this time; what was allowed is the same. */
    Decision later(long passedMs) {
        if (allowed) return this;
        return changed(members.stream().map(member -> member.later(passedMs)).toList(), (name, values) -> {
            long least = name.equals("retry_after_ms") ? 1 : 0;
            if (name.equals("source")) values.put(name, "deny_cache");
            else if (number(name, -1) >= 0) values.put(name, Math.max(least, number(name, 0) - passedMs));
        }, "source", "retry_after_ms", "reset_after_ms", "of_reset_ms");
    }

    /** The same decision with the figures of a later answer about the same counter, such as that of a refund. */
    public Decision withFiguresOf(Decision later) {
        return changed(members, (name, values) -> {
            if (later.fields.get(name) != null) values.put(name, later.fields.get(name));
        }, "remaining", "reset_after_ms", "of_reset_ms");
    }

    private Decision changed(List<Decision> decisions, BiConsumer<String, Map<Object, Object>> change, String... names) {
        Map<Object, Object> values = new HashMap<>(fields);
        for (String name : names) change.accept(name, values);
        return new Decision(values, allowed, cost, decisions);
    }

    static UnavailableException invalid(String what) {
        return new UnavailableException(UnavailableException.Kind.PROTOCOL, true,
                "the answer is not valid: " + what);
    }

    public boolean allowed() {
        return allowed;
    }

    /** The capacity: the policy's limit, or the burst of a bucket. */
    public long limit() {
        return number("limit", 0);
    }

    /** Units that could be charged now. */
    public long remaining() {
        return number("remaining", 0);
    }

    /** 0 when allowed; -1: never, waiting does not help. */
    public long retryAfterMs() {
        return number("retry_after_ms", 0);
    }

    /** Zero when allowed; empty: never. */
    public Optional<Duration> retryAfter() {
        return retryAfterMs() < 0 ? Optional.empty() : Optional.of(Duration.ofMillis(retryAfterMs()));
    }

    /** Until the whole limit is available again, without further charges. */
    public long resetAfterMs() {
        return number("reset_after_ms", 0);
    }

    /** Allowed: wait this long before going ahead. 0 unless the policy has a max_wait. */
    public long delayMs() {
        return number("delay_ms", 0);
    }

    /** Units charged. */
    public long granted() {
        return number("granted", allowed ? cost : 0);
    }

    /** Of several limits, the one that denied: `policy/limit`, or `policy` if it has no name; else null. */
    public String boundBy() {
        return text("bound_by");
    }

    /** Who decided: redis, memory, deny_cache, unlimited; or the failure answer: allow, deny, local. */
    public String source() {
        return text("source");
    }

    /** Why the store did not decide: down, deadline, overload, store_error; null if it did. */
    public String reason() {
        return text("reason");
    }

    /** A fingerprint of the policy's settings. */
    public long policyVersion() {
        return number("policy_version", 0);
    }

    /** A shadow policy allowed it, and would have denied it if it were enforced. */
    public boolean shadowDenied() {
        return Boolean.TRUE.equals(fields.get("shadow_denied"));
    }

    /** More than the policy's `warn_at` is used. */
    public boolean near() {
        return Boolean.TRUE.equals(fields.get("near"));
    }

    /** The limit that {@link #limit()} and {@link #remaining()} speak of: `policy/limit`, or `policy` if it has no
     * name. This and the next three are null (-1) for unlimited and failure answers, and from older daemons. */
    public String of() {
        return text("of");
    }

    /** The setting `limit` of that limit, where {@link #limit()} is a bucket's burst; else -1. */
    public long quota() {
        return number("quota", -1);
    }

    /** The window of that limit; 0 for concurrency; else -1. */
    public long windowMs() {
        return number("window_ms", -1);
    }

    /** When that limit alone is unused again; else -1. */
    public long ofResetMs() {
        return number("of_reset_ms", -1);
    }

    /** Of a refund, settle or cancel: the units given back. */
    public long refunded() {
        return number("refunded", 0);
    }

    /** Of a settle: the units charged beyond the estimate. */
    public long charged() {
        return number("charged", 0);
    }

    /** Of a settle or cancel: the reservation had ended before. */
    public boolean ended() {
        return Boolean.TRUE.equals(fields.get("ended"));
    }

    /** Of a check_all: each member's own decision, in the same order; else empty. */
    public List<Decision> members() {
        return members;
    }

    /** Did a limit count this? False for failure answers, unlimited keys, and what a shadow policy let through. */
    public boolean counted() {
        return !List.of("allow", "deny", "unlimited").contains(source()) && !shadowDenied();
    }

    String slot() {
        return text("slot");
    }

    String reservation() {
        return text("reservation");
    }

    private String text(String name) {
        return Wire.text(fields.get(name));
    }

    private long number(String name, long absent) {
        return fields.get(name) instanceof Long value ? value : absent;
    }

    @Override
    public String toString() {
        return (allowed ? "allowed " : "denied ") + fields;
    }
}
