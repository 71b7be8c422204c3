package io.ratelimitd.spring;

import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.annotation.AnnotationUtils;
import org.springframework.util.ClassUtils;
import org.springframework.util.ReflectionUtils;

/** The limits that annotations declare at a method. */
final class Declarations {
    private Declarations() {
    }

    /** The declared ones of the method, else those of its class; empty where they are ignored. */
    static List<Limit> of(Class<?> type, Method method, String endpoint, Expressions expressions) {
        boolean ignored = AnnotatedElementUtils.hasAnnotation(method, IgnoreRateLimit.class);
        Set<RateLimit> declared = annotations(method);
        if (declared.isEmpty() && !ignored) {
            ignored = AnnotatedElementUtils.hasAnnotation(type, IgnoreRateLimit.class);
            declared = annotations(type);
        }
        if (ignored) return List.of();

        String where = where(type, method);
        List<Limit> limits = new ArrayList<>();
        for (RateLimit limit : declared)
            limits.add(Limit.of(Declared.of(limit, where), where, limit.endpoint().isEmpty() ? endpoint : limit.endpoint(),
                    expressions));
        return List.copyOf(limits);
    }

    /**
     * Is there a limit at this bean, or at one of its methods?
     *
     * @throws InvalidLimitException one that would never be asked, because no proxy sees calls of the method
     */
    static boolean areAt(Class<?> bean) {
        Class<?> type = ClassUtils.getUserClass(bean);
        if (!AnnotationUtils.isCandidateClass(type, List.of(RateLimit.class, RateLimits.class))) return false;

        List<Method> declared = methods(type);
        for (Method method : declared)
            if ((method.getModifiers() & (Modifier.PRIVATE | Modifier.STATIC | Modifier.FINAL)) != 0)
                throw new InvalidLimitException(where(type, method),
                        "a method that is private, static or final cannot be limited");
        return !declared.isEmpty() || !annotations(type).isEmpty();
    }

    /** The methods at which there are limits. */
    private static List<Method> methods(Class<?> type) {
        return Arrays.stream(ReflectionUtils.getAllDeclaredMethods(type))
                .filter(method -> !method.isBridge() && !annotations(method).isEmpty()).toList();
    }

    /** @throws InvalidLimitException the controller has a limit at something that handles no request */
    static void areAtHandlers(Class<?> controller, Collection<Method> handlers) {
        for (Method method : methods(controller))
            if (handlers.stream().noneMatch(one -> one.getName().equals(method.getName())
                    && Arrays.equals(one.getParameterTypes(), method.getParameterTypes())))
                throw new InvalidLimitException(where(controller, method),
                        "it would never be asked: no request is mapped to this method of a controller");
        if (handlers.isEmpty() && !annotations(controller).isEmpty())
            throw new InvalidLimitException("@RateLimit at " + controller.getName(),
                    "it would never be asked: no request is mapped to this controller");
    }

    private static String where(Class<?> type, Method method) {
        return "@RateLimit at " + type.getName() + "." + method.getName();
    }

    /** Has it a limit of its own whose name is that of the method? */
    static boolean countByName(Class<?> type) {
        List<RateLimit> all = new ArrayList<>(annotations(type));
        methods(type).forEach(method -> all.addAll(annotations(method)));
        return all.stream().anyMatch(limit -> limit.endpoint().isEmpty()
                && (limit.policy().isEmpty() ? limit.policyExpression().isEmpty() : limit.policy().contains("/")));
    }

    /** As the preset endpoint-window has it. */
    static String handler(Class<?> type, Method method) {
        return type.getName() + "-" + method.getName();
    }

    /** The qualified name of a method that no route leads to. */
    static String qualified(Class<?> type, Method method) {
        return type.getName() + "." + method.getName() + Arrays.stream(method.getParameterTypes()).map(Class::getTypeName)
                .collect(Collectors.joining(",", "(", ")"));
    }

    private static Set<RateLimit> annotations(AnnotatedElement element) {
        return AnnotatedElementUtils.findMergedRepeatableAnnotations(element, RateLimit.class, RateLimits.class);
    }
}
