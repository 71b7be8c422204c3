package io.ratelimitd;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What a call is limited by: the name of a policy of the daemon's configuration, or settings sent with each call. */
public final class Policy {
    private static final Pattern SHORTHAND = Pattern.compile("\\s*([0-9]{1,16})\\s*/\\s*([0-9]{0,16})\\s*(?:(ms|s|m|h|d)|(second|minute|hour|day)s?)\\s*");

    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9._-]{1,128}");

    private static final List<String> MUST_STAY =
            List.of("burst", "max_wait", "lease", "on_change", "merge_back", "debt", "candidate");
    private static final int MAX_ID_BYTES = 256;
    private static final int KEPT_OF_ID = 40;

    private final Object wire;

    private Policy(Object wire) {
        this.wire = wire;
    }

    public static Policy named(String name) {
        if (name.isEmpty()) throw new IllegalArgumentException("the name of a policy is empty");
        return new Policy(name);
    }

    /**
     * Settings as in the daemon's configuration, which must have {@code inline: {allow: true}}. With {@code name}, answers,
     * header fields and logs say that in place of {@code inline-} and 16 hex digits.
     */
    public static Policy inline(Map<String, ?> settings) {
        Object name = settings.get("name");
        if (settings.containsKey("name") && !(name instanceof String text && isName(text)))
            throw new IllegalArgumentException("the name of a policy has 1 to 128 letters, digits, '.', '_' and '-': not "
                    + (name instanceof String ? "'" + name + "'" : name));
        return new Policy(new LinkedHashMap<>(settings));
    }

    /** Is it written like the name of a policy? */
    public static boolean isName(String text) {
        return NAME.matcher(text).matches();
    }

    /** The same inline settings with this name. */
    public Policy withName(String name) {
        if (!isInline()) throw new IllegalArgumentException("the policy " + wire + " has a name; `name` is for inline settings");
        Map<String, Object> settings = new LinkedHashMap<>(settings());
        settings.put("name", name);
        return inline(settings);
    }

    /**
     * The same inline settings with this id: the limit may move, and its counter stays. Settings with an id keep theirs, and
     * those that do not go with one get none. It is sent to daemons that list the feature `id`.
     */
    public Policy withId(String id) {
        if (!isInline() || settings().containsKey("id") || !mayMove(settings())) return this;
        Map<String, Object> settings = new LinkedHashMap<>(settings());
        settings.put("id", boundedId(id));
        return new Policy(settings);
    }

    /** The daemon refuses an id next to these. */
    private static boolean mayMove(Map<?, ?> settings) {
        boolean countsDenied = Boolean.TRUE.equals(settings.get("count_denied"));
        boolean isWrong = MUST_STAY.stream().anyMatch(settings::containsKey) || "leaky_bucket".equals(settings.get("algorithm"))
                || countsDenied && "sliding_log".equals(settings.get("algorithm"));
        return !isWrong && !(settings.get("limits") instanceof List<?> limits
                && limits.stream().anyMatch(limit -> limit instanceof Map<?, ?> one && !mayMove(one)));
    }

    private static String boundedId(String id) {
        boolean hasControl = id.chars().anyMatch(c -> c < ' ' || c == 0x7f);
        if (!hasControl && id.getBytes(StandardCharsets.UTF_8).length <= MAX_ID_BYTES) return id;
        return id.replaceAll("[\\x00-\\x1f\\x7f]", "?").substring(0, Math.min(id.length(), KEPT_OF_ID)) + "#" + Key.hashed(id);
    }

    /** Does it count denials? Of a name that is not known here. */
    public boolean countsDenied() {
        return Boolean.TRUE.equals(settings().get("count_denied")) || settings().get("limits") instanceof List<?> limits
                && limits.stream().anyMatch(limit -> limit instanceof Map<?, ?> one && Boolean.TRUE.equals(one.get("count_denied")));
    }

    /** A policy's name, or a limit in short as {@link #parse} has it. */
    public static Policy read(String text) {
        if (isName(text)) return new Policy(text);
        if (text.contains("/") || text.isEmpty()) return parse(text);
        throw new IllegalArgumentException("'" + text + "' is neither a policy's name (letters, digits, '.', '_', '-') nor a"
                + " limit; write a limit as 10/5s or 5000/day");
    }

    /**
     * {@code limit} in each window that begins with a key's first hit.
     *
     * @param window a whole number and its unit: ms, s, m, h or d
     */
    public static Policy of(long limit, String window) {
        return parse(limit + "/" + window);
    }

    /** As {@link #of}, in one text: "10/5s", "100/minute", "5000/day". */
    public static Policy parse(String text) {
        Matcher matcher = SHORTHAND.matcher(text);
        if (!matcher.matches() || matcher.group(2).matches("0+"))
            throw new IllegalArgumentException(
                    "'" + text + "' is not a limit; write the number and the window, such as 10/5s or 5000/day");

        String unit = matcher.group(3) != null ? matcher.group(3) : matcher.group(4).substring(0, 1);
        String count = matcher.group(2).isEmpty() ? "1" : matcher.group(2);
        Map<String, Object> settings = new LinkedHashMap<>();
        settings.put("algorithm", "fixed_window");
        settings.put("limit", Long.parseLong(matcher.group(1)));
        settings.put("window", count + unit);
        settings.put("start", "first_hit");
        return new Policy(settings);
    }

    public boolean isInline() {
        return wire instanceof Map;
    }

    /** The name; of inline settings without one "inline". */
    public String name() {
        String given = givenName();
        return !isInline() ? (String) wire : given == null ? "inline" : given;
    }

    /** Of inline settings; null if they have none, or if it is a configured policy. */
    String givenName() {
        return (String) settings().get("name");
    }

    /** Is it the other, or one limit of it, or the name of its settings? */
    boolean includes(Policy other) {
        if (equals(other)) return true;
        if (settings().get("id") instanceof String id && id.equals(other.settings().get("id"))) return true;
        String name = isInline() ? null : ((String) wire).split("/", 2)[0];
        return name != null && name.equals(other.isInline() ? other.givenName() : other.wire);
    }

    /** As it is sent: a String, or a Map of settings. */
    Object wire() {
        return wire;
    }

    /** The inline settings as they are sent; empty for a name. */
    @SuppressWarnings("unchecked")
    public Map<String, Object> settings() {
        return isInline() ? Collections.unmodifiableMap((Map<String, Object>) wire) : Map.of();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Policy policy && wire.equals(policy.wire);
    }

    @Override
    public int hashCode() {
        return wire.hashCode();
    }

    @Override
    public String toString() {
        return wire.toString();
    }
}
