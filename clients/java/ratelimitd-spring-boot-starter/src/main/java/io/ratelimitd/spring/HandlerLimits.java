package io.ratelimitd.spring;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.stereotype.Controller;
import org.springframework.util.ClassUtils;
import org.springframework.web.method.HandlerMethod;

/** The limits of the handlers of controllers. */
final class HandlerLimits {
    private final Expressions expressions;
    private final Policies policies;
    private final Map<HandlerMethod, List<Limit>> limits = new ConcurrentHashMap<>();
    private volatile Routes routes = new Routes(Map.of(), Map.of());

    HandlerLimits(Expressions expressions, Policies policies) {
        this.expressions = expressions;
        this.policies = policies;
    }

    /**
     * At the start, so that a mistake stops it: reads those of all handlers.
     *
     * @throws InvalidLimitException one cannot be meant so, or stands where it would never be asked
     */
    void read(Routes known, ListableBeanFactory beans) {
        routes = known;
        known.names().keySet().forEach(this::of);
        for (String name : beans.getBeanNamesForAnnotation(Controller.class)) {
            Class<?> type = ClassUtils.getUserClass(beans.getType(name));
            Declarations.areAtHandlers(type, known.names().keySet().stream().filter(handler -> handler.getBeanType() == type)
                    .map(HandlerMethod::getMethod).toList());
        }
    }

    List<Limit> of(HandlerMethod resolved) {
        HandlerMethod handler = mapped(resolved);
        List<Limit> known = limits.get(handler);
        if (known != null) return known;

        List<Limit> read = Declarations.of(handler.getBeanType(), handler.getMethod(), endpoint(handler), expressions);
        Set<String> variables = routes.variables().get(handler);
        for (Limit limit : read)
            for (String name : limit.pathNames())
                if (variables != null && !variables.contains(name))
                    throw new InvalidLimitException(limit.where(), "the path `" + endpoint(handler) + "` has no variable `" + name
                            + "`; it has " + (variables.isEmpty() ? "none" : String.join(", ", variables)));
        if (limits.putIfAbsent(handler, read) == null) policies.declare(read, handler.toString());
        return read;
    }

    /** As the application has mapped it, before the bean was looked up: two beans of one class are two handlers. */
    private static HandlerMethod mapped(HandlerMethod handler) {
        HandlerMethod from = handler.getResolvedFromHandlerMethod();
        return from == null ? handler : from;
    }

    /** The route; of what was mapped after the start, the method's qualified name. */
    String endpoint(HandlerMethod resolved) {
        HandlerMethod handler = mapped(resolved);
        String name = routes.names().get(handler);
        return name != null ? name : Declarations.qualified(handler.getBeanType(), handler.getMethod());
    }

    static String handler(HandlerMethod handler) {
        return Declarations.handler(handler.getBeanType(), handler.getMethod());
    }
}
