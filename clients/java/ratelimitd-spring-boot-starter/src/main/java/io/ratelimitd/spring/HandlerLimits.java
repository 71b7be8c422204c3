package io.ratelimitd.spring;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.core.MethodClassKey;
import org.springframework.stereotype.Controller;
import org.springframework.util.ClassUtils;
import org.springframework.web.method.HandlerMethod;

/** The limits of the handlers of controllers. */
final class HandlerLimits {
    private final Expressions expressions;
    private final Policies policies;
    private final Map<MethodClassKey, List<Limit>> limits = new ConcurrentHashMap<>();

    HandlerLimits(Expressions expressions, Policies policies) {
        this.expressions = expressions;
        this.policies = policies;
    }

    /**
     * At the start, so that a mistake stops it: reads those of all handlers.
     *
     * @throws InvalidLimitException one cannot be meant so, or stands where it would never be asked
     */
    void read(Collection<HandlerMethod> handlers, ListableBeanFactory beans) {
        handlers.forEach(this::of);
        for (String name : beans.getBeanNamesForAnnotation(Controller.class)) {
            Class<?> type = ClassUtils.getUserClass(beans.getType(name));
            Declarations.areAtHandlers(type, handlers.stream().filter(handler -> handler.getBeanType() == type)
                    .map(HandlerMethod::getMethod).toList());
        }
    }

    List<Limit> of(HandlerMethod handler) {
        MethodClassKey key = new MethodClassKey(handler.getMethod(), handler.getBeanType());
        List<Limit> known = limits.get(key);
        if (known != null) return known;

        List<Limit> read = Declarations.of(handler.getBeanType(), handler.getMethod(), expressions);
        if (limits.putIfAbsent(key, read) == null) policies.declare(read);
        return read;
    }

    static String endpoint(HandlerMethod handler) {
        return Declarations.endpoint(handler.getBeanType(), handler.getMethod());
    }
}
