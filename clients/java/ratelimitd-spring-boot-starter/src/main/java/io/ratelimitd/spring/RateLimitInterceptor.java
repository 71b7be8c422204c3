package io.ratelimitd.spring;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.servlet.AsyncHandlerInterceptor;

/**
 * Limits the handlers of controllers. Not an aspect: it sees every request to a handler, and nothing else. A request that is
 * forwarded within the server comes to several; each of them counts once.
 */
final class RateLimitInterceptor implements AsyncHandlerInterceptor {
    private static final String PASSAGES = RateLimitInterceptor.class.getName() + ".passages";

    private final WebGuard guard;
    private final HandlerLimits limits;

    RateLimitInterceptor(WebGuard guard, HandlerLimits limits) {
        this.guard = guard;
        this.limits = limits;
    }

    @Override
    public boolean preHandle(HttpServletRequest request, HttpServletResponse response, Object handler)
            throws IOException {
        /* an error page belongs to a request that was limited before; so does what follows asynchronous work */
        if (request.getDispatcherType() == DispatcherType.ERROR || !(handler instanceof HandlerMethod method)) return true;
        Map<Object, Passage> passages = passages(request);
        if (passages.containsKey(handler)) return true;

        Passage passage = guard.enter(limits.of(method), limits.endpoint(method), HandlerLimits.handler(method), request, response);
        if (passage != null) passages.put(handler, passage);
        return passage != null;
    }

    @SuppressWarnings("unchecked")
    private static Map<Object, Passage> passages(HttpServletRequest request) {
        Map<Object, Passage> known = (Map<Object, Passage>) request.getAttribute(PASSAGES);
        if (known == null) request.setAttribute(PASSAGES, known = new HashMap<>());
        return known;
    }

    @Override
    public void afterConcurrentHandlingStarted(HttpServletRequest request, HttpServletResponse response, Object handler) {
        Passage passage = passages(request).get(handler);
        if (passage != null && request.isAsyncStarted()) WebGuard.endWithAsync(request, response, passage);
    }

    @Override
    public void afterCompletion(HttpServletRequest request, HttpServletResponse response, Object handler, Exception error) {
        boolean failed = error != null && response.getStatus() < HttpServletResponse.SC_BAD_REQUEST;
        Passage passage = passages(request).get(handler);
        if (passage != null) passage.end(failed ? HttpServletResponse.SC_INTERNAL_SERVER_ERROR : response.getStatus());
    }
}
