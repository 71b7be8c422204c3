package io.ratelimitd;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

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

    /** For a daemon that does not take the names of inline policies. The same if there are none. */
    Request withoutNames() {
        Object first = params.isEmpty() ? null : params.get(0);
        Object nameless = first instanceof List<?> items ? items.stream().map(Request::memberWithoutName).toList()
                : withoutName(first);
        if (first == null || nameless.equals(first)) return this;

        List<Object> changed = new ArrayList<>(params);
        changed.set(0, nameless);
        return new Request(method, changed, timeout, mayRepeat);
    }

    private static Object memberWithoutName(Object item) {
        if (!(item instanceof List<?> member) || member.isEmpty()) return item;
        List<Object> changed = new ArrayList<>(member);
        changed.set(0, withoutName(member.get(0)));
        return changed;
    }

    private static Object withoutName(Object policy) {
        if (!(policy instanceof Map<?, ?> settings) || !settings.containsKey("name")) return policy;
        Map<Object, Object> changed = new LinkedHashMap<>(settings);
        changed.remove("name");
        return changed;
    }
}
