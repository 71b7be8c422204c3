package io.ratelimitd;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** May this key do that now, at this cost? A member of check_all and check_many, or a check by itself. */
public final class Check {
    private final Policy policy;
    private final Object key; /* String or byte[], as it is sent */
    private final long cost;

    private Check(Policy policy, Object key, long cost) {
        this.policy = policy;
        this.key = key;
        this.cost = cost;
    }

    public static Check of(String policy, String key) {
        return of(Policy.named(policy), key, 1);
    }

    public static Check of(String policy, String key, long cost) {
        return of(Policy.named(policy), key, cost);
    }

    /**
     * @param key  up to 512 bytes of UTF-8; of a longer one the first 64 bytes and a SHA-256 of the whole are sent
     * @param cost units to charge, 0 to 2^53 - 1; 0 charges nothing
     */
    public static Check of(Policy policy, String key, long cost) {
        return new Check(policy, Key.bounded(key), cost);
    }

    /** For keys that are not text. */
    public static Check of(Policy policy, byte[] key, long cost) {
        return new Check(policy, Key.bounded(key), cost);
    }

    public Check withCost(long units) {
        return new Check(policy, key, units);
    }

    public Policy policy() {
        return policy;
    }

    public long cost() {
        return cost;
    }

    /** The key as text; bytes that are not UTF-8 are replaced. */
    public String key() {
        return key instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : (String) key;
    }

    /** Policy, key and, if it is not the default, the cost: the parameters of `check` and of a member of a list. */
    List<Object> params() {
        List<Object> params = new ArrayList<>(4);
        params.add(policy.wire());
        params.add(key);
        if (cost != 1) params.add(cost);
        return params;
    }

    /** Two equal members count one thing twice: check_all refuses them. */
    public boolean sameCounter(Check other) {
        return policy.equals(other.policy) && sameKey(other);
    }

    private boolean sameKey(Check other) {
        return Arrays.equals(keyBytes(), other.keyBytes());
    }

    /** The key as it is sent. */
    public byte[] keyBytes() {
        return key instanceof String text ? text.getBytes(StandardCharsets.UTF_8) : ((byte[]) key).clone();
    }

    /** Does a reset or refund of this change what the other one gets? */
    boolean concerns(Check other) {
        return sameKey(other) && policy.includes(other.policy);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Check check && cost == check.cost && sameCounter(check);
    }

    @Override
    public int hashCode() {
        return 31 * (31 * policy.hashCode() + Arrays.hashCode(keyBytes())) + Long.hashCode(cost);
    }

    @Override
    public String toString() {
        return policy + " " + key() + " " + cost;
    }
}
