package io.ratelimitd.spring;

import java.util.Map;

/** In the expressions of a bean without a web request: the arguments by their names, `#tenant`, and all as `#args`. */
public final class BeanContext extends CallContext {
    BeanContext(String endpoint, Map<String, Object> arguments) {
        super(endpoint, arguments);
    }

    @Override
    String address() {
        throw new IllegalStateException("a call without a web request has no address");
    }
}
