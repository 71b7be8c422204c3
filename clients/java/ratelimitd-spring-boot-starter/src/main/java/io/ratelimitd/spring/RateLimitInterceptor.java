package io.ratelimitd.spring;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.servlet.AsyncHandlerInterceptor;

/** Limits the handlers of controllers. Not an aspect: it sees every request to a handler, and nothing else. */
final class RateLimitInterceptor implements AsyncHandlerInterceptor {
    private static final String PASSAGE = RateLimitInterceptor.class.getName() + ".passage";

    private final WebGuard guard;
    private final HandlerLimits limits;

    RateLimitInterceptor(WebGuard guard, HandlerLimits limits) {
        this.guard = guard;
        this.limits = limits;
    }

    @Override
    public boolean preHandle(HttpServletRequest request, HttpServletResponse response, Object handler)
            throws IOException {
        /* a dispatch of the same request, after asynchronous work or to an error page, was limited before */
        if (request.getDispatcherType() != DispatcherType.REQUEST || !(handler instanceof HandlerMethod method)) return true;

        Passage passage = guard.enter(limits.of(method), HandlerLimits.endpoint(method), request, response);
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
