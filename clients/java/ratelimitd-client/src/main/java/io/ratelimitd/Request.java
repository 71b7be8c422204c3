package io.ratelimitd;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * One call of the protocol.
 *
 * @param params     values that MessagePack has: String, byte[], Long, Boolean, List, Map, null
 * @param mayRepeat  it has a request id, so it may be sent again after the connection was lost
 */
public record Request(String method, List<Object> params, Duration timeout, boolean mayRepeat) {
    /**
     * The call that gives back what no caller waits for any more: a late yes to acquire is released, to reserve
     * cancelled. null if there is nothing to give back.
     */
    Request undo(Object result) {
        if (!(result instanceof Map<?, ?> fields) || !Boolean.TRUE.equals(fields.get("allowed"))) return null;

        String[] undone = switch (method) {
            case "acquire" -> new String[] {"release", "slot"};
            case "reserve" -> new String[] {"cancel", "reservation"};
            default -> null;
        };
        String id = undone == null ? null : Wire.text(fields.get(undone[1]));
        return id == null ? null : new Request(undone[0], List.of(id), timeout, false);
    }

    /** What gives back is never held back: it goes through an open breaker too. */
    boolean givesBack() {
        return method.equals("release") || method.equals("settle") || method.equals("cancel");
    }

    boolean canBeUndone() {
        return method.equals("acquire") || method.equals("reserve");
    }

    /** For a daemon that does not take these settings of inline policies. The same if there are none. */
    Request without(Set<String> unknown) {
        Object first = params.isEmpty() ? null : params.get(0);
        if (first == null || unknown.isEmpty()) return this;
        Object known = first instanceof List<?> items ? items.stream().map(item -> memberWithout(item, unknown)).toList()
                : policyWithout(first, unknown);
        if (known.equals(first)) return this;

        List<Object> changed = new ArrayList<>(params);
        changed.set(0, known);
        return new Request(method, changed, timeout, mayRepeat);
    }

    private static Object memberWithout(Object item, Set<String> unknown) {
        if (!(item instanceof List<?> member) || member.isEmpty()) return item;
        List<Object> changed = new ArrayList<>(member);
        changed.set(0, policyWithout(member.get(0), unknown));
        return changed;
    }

    private static Object policyWithout(Object policy, Set<String> unknown) {
        if (!(policy instanceof Map<?, ?> settings)) return policy;
        Map<Object, Object> changed = new LinkedHashMap<>(settings);
        changed.keySet().removeAll(unknown);
        return changed;
    }
}
