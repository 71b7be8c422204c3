package io.ratelimitd.spring;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.core.MethodClassKey;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.servlet.AsyncHandlerInterceptor;

/** Limits the handlers of controllers. Not an aspect: it sees every request to a handler, and nothing else. */
final class RateLimitInterceptor implements AsyncHandlerInterceptor {
    private static final String PASSAGE = RateLimitInterceptor.class.getName() + ".passage";
    private static final Expressions EXPRESSIONS = new Expressions(WebContext.class, WebContext.variables());

    private final WebGuard guard;
    private final Policies policies;
    private final Map<MethodClassKey, List<Limit>> limits = new ConcurrentHashMap<>();

    RateLimitInterceptor(WebGuard guard, Policies policies) {
        this.guard = guard;
        this.policies = policies;
    }

    /** The limits of a handler; those of all handlers are read at the start. */
    List<Limit> limitsOf(HandlerMethod handler) {
        MethodClassKey key = new MethodClassKey(handler.getMethod(), handler.getBeanType());
        List<Limit> known = limits.get(key);
        if (known != null) return known;

        List<Limit> read = Declarations.of(handler.getBeanType(), handler.getMethod(), EXPRESSIONS);
        if (limits.putIfAbsent(key, read) == null) policies.declare(read);
        return read;
    }

    @Override
    public boolean preHandle(HttpServletRequest request, HttpServletResponse response, Object handler)
            throws IOException {
        /* a dispatch of the same request, after asynchronous work or to an error page, was limited before */
        if (request.getDispatcherType() != DispatcherType.REQUEST || !(handler instanceof HandlerMethod method)) return true;

        Passage passage = guard.enter(limitsOf(method), Declarations.endpoint(method.getBeanType(), method.getMethod()),
                request, response);
        request.setAttribute(PASSAGE, passage);
        return passage != null;
    }

    @Override
    public void afterConcurrentHandlingStarted(HttpServletRequest request, HttpServletResponse response, Object handler) {
        if (request.getAttribute(PASSAGE) instanceof Passage passage && request.isAsyncStarted())
            WebGuard.endWithAsync(request, response, passage);
    }

    @Override
    public void afterCompletion(HttpServletRequest request, HttpServletResponse response, Object handler, Exception error) {
        boolean failed = error != null && response.getStatus() < HttpServletResponse.SC_BAD_REQUEST;
        if (request.getAttribute(PASSAGE) instanceof Passage passage)
            passage.end(failed ? HttpServletResponse.SC_INTERNAL_SERVER_ERROR : response.getStatus());
    }
}
