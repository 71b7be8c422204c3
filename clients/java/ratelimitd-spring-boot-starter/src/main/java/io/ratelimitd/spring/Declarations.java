package io.ratelimitd.spring;

import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.springframework.core.annotation.AnnotatedElementUtils;

/** The limits that annotations declare at a method. */
final class Declarations {
    private Declarations() {
    }

    /** The declared ones of the method, else those of its class; empty where they are ignored. */
    static List<Limit> of(Class<?> type, Method method, Expressions expressions) {
        boolean ignored = AnnotatedElementUtils.hasAnnotation(method, IgnoreRateLimit.class);
        Set<RateLimit> declared = annotations(method);
        if (declared.isEmpty() && !ignored) {
            ignored = AnnotatedElementUtils.hasAnnotation(type, IgnoreRateLimit.class);
            declared = annotations(type);
        }
        if (ignored) return List.of();

        String where = "@RateLimit at " + type.getName() + "." + method.getName();
        List<Limit> limits = new ArrayList<>();
        for (RateLimit limit : declared)
            limits.add(Limit.of(Limit.Declared.of(limit), where, endpoint(type, method), expressions));
        return List.copyOf(limits);
    }

    static boolean areAt(Class<?> type) {
        if (!annotations(type).isEmpty()) return true;
        for (Method method : type.getMethods()) if (!annotations(method).isEmpty()) return true;
        return false;
    }

    static String endpoint(Class<?> type, Method method) {
        return type.getName() + "-" + method.getName();
    }

    private static Set<RateLimit> annotations(AnnotatedElement element) {
        return AnnotatedElementUtils.findMergedRepeatableAnnotations(element, RateLimit.class, RateLimits.class);
    }
}
