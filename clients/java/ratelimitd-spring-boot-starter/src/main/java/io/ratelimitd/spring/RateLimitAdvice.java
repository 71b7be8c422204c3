package io.ratelimitd.spring;

import io.ratelimitd.DeniedException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.framework.autoproxy.AbstractBeanFactoryAwareAdvisingPostProcessor;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.StaticMethodMatcherPointcut;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.MethodClassKey;
import org.springframework.core.ReactiveAdapter;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.stereotype.Controller;
import org.springframework.util.ClassUtils;

/**
 * Limits methods of beans that are no controllers: schedulers, listeners, services. A denial is a DeniedException there.
 * Like every advice it sees only calls from outside the bean. Controllers have the interceptor, and are left alone.
 */
final class RateLimitAdvice extends AbstractBeanFactoryAwareAdvisingPostProcessor {
    private static final long serialVersionUID = 1L;
    private static final int OK = 200;
    private static final boolean HAVE_REACTOR =
            ClassUtils.isPresent("reactor.core.publisher.Mono", RateLimitAdvice.class.getClassLoader());

    private final transient ObjectProvider<Guard> guard;
    private final transient ObjectProvider<Policies> policies;
    private final transient Map<Class<?>, String> beans = new ConcurrentHashMap<>(); /* the first name of each class */
    private final transient Map<MethodClassKey, List<Limit>> limits = new ConcurrentHashMap<>();

    RateLimitAdvice(ObjectProvider<Guard> guard, ObjectProvider<Policies> policies) {
        this.guard = guard;
        this.policies = policies;
        advisor = new DefaultPointcutAdvisor(new StaticMethodMatcherPointcut() {
            @Override
            public boolean matches(Method method, Class<?> type) {
                return !limitsOf(type, method).isEmpty();
            }
        }, (MethodInterceptor) this::limited);
        setProxyTargetClass(true);
    }

    @Override
    protected boolean isEligible(Class<?> type) {
        return !AnnotatedElementUtils.hasAnnotation(type, Controller.class) && Declarations.areAt(type)
                && super.isEligible(type);
    }

    /** @throws InvalidLimitException another bean of this class would have the same counters */
    @Override
    protected boolean isEligible(Object bean, String name) {
        boolean isLimited = super.isEligible(bean, name);
        Class<?> type = ClassUtils.getUserClass(bean);
        String other = isLimited ? beans.putIfAbsent(type, name) : null;
        if (other != null && !other.equals(name) && Declarations.countByName(type))
            throw new InvalidLimitException("@RateLimit at " + type.getName(), "the beans " + other + " and " + name
                    + " have limits of the same name, so they would share counters: write `endpoint`, or use a policy");
        return isLimited;
    }

    /** Reads them when the bean is made, so that a mistake stops the start. */
    private List<Limit> limitsOf(Class<?> type, Method declared) {
        Method method = AopUtils.getMostSpecificMethod(declared, type);
        if (method.getDeclaringClass() == Object.class) return List.of();
        MethodClassKey key = new MethodClassKey(method, type);
        List<Limit> known = limits.get(key);
        if (known != null) return known;

        List<Limit> read = Declarations.of(type, method, Declarations.qualified(type, method),
                new Expressions(BeanContext.class, names(method).keySet()));
        for (Limit limit : read) {
            if (limit.key() == null)
                throw new InvalidLimitException(limit.where(), "a bean that is not a controller has no client's address;"
                        + " give the limit a key, such as \"#tenant\" or \"'all'\"");
            if (limit.chargeWhen() != null)
                throw new InvalidLimitException(limit.where(), "there is no status to charge by without a request");
            if (limit.headers() != Headers.DEFAULT)
                throw new InvalidLimitException(limit.where(), "there are no header fields without a request");
        }
        if (limits.putIfAbsent(key, read) == null && !read.isEmpty()) policies.getObject().declare(read, method.toString());
        return read;
    }

    /** Its parameters by name, with their places; `args` is all of them. */
    private static Map<String, Integer> names(Method method) {
        Map<String, Integer> places = new HashMap<>(Map.of("args", -1));
        String[] names = new DefaultParameterNameDiscoverer().getParameterNames(method);
        for (int i = 0; names != null && i < names.length; i++) places.put(names[i], i);
        return places;
    }

    /** @throws RuntimeException why it does not go on */
    private static Passage open(Passage passage) {
        if (passage.failure() != null) throw passage.failure();
        if (passage.denial() != null) throw new DeniedException(passage.denial().policy(), passage.denial().decision());
        return passage;
    }

    private Object limited(MethodInvocation call) throws Throwable {
        Class<?> type = call.getThis() == null ? call.getMethod().getDeclaringClass() : AopUtils.getTargetClass(call.getThis());
        List<Limit> own = limitsOf(type, call.getMethod());
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), type);
        Map<String, Object> arguments = new HashMap<>();
        names(method).forEach((name, place) ->
                arguments.put(name, place < 0 ? Arrays.asList(call.getArguments()) : call.getArguments()[place]));

        BeanContext context = new BeanContext(Declarations.qualified(type, method), arguments);
        ReactiveAdapter adapter = HAVE_REACTOR ? ReactiveCalls.adapter(method.getReturnType()) : null;
        if (adapter != null)
            return ReactiveCalls.limited(adapter, call,
                    () -> guard.getObject().enterAsync(own, new Passage(context, null)).thenApply(RateLimitAdvice::open));

        Passage passage = open(guard.getObject().enter(own, context, null));
        boolean goesOn = false;
        try {
            Object result = call.proceed();
            goesOn = result instanceof CompletionStage;
            if (result instanceof CompletionStage<?> later) later.whenComplete((value, error) -> passage.end(OK));
            return result;
        } finally {
            if (!goesOn) passage.end(OK);
        }
    }
}
