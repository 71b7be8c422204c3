package io.ratelimitd.spring;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.http.server.RequestPath;
import org.springframework.web.filter.OncePerRequestFilter;

/** Limits URLs, before a handler is looked for: also what ends as 404. All filters that match are decided together. */
final class RateLimitFilter extends OncePerRequestFilter implements Ordered {
    private final WebGuard guard;
    private final UrlLimits rules;
    private final int order;

    RateLimitFilter(WebGuard guard, UrlLimits rules, int order) {
        this.guard = guard;
        this.rules = rules;
        this.order = order;
    }

    @Override
    public int getOrder() {
        return order;
    }

    @Override
    protected void doFilterInternal(HttpServletRequest request, HttpServletResponse plain, FilterChain chain)
            throws ServletException, IOException {
        HttpServletResponse response = new LimitedResponse(plain);
        List<Limit> limits = rules.of(RequestPath.parse(request.getRequestURI(), request.getContextPath())
                .pathWithinApplication());
        Passage passage = guard.enter(limits, UrlLimits.endpoint(limits), request, response);
        if (passage == null) return;

        int failed = HttpServletResponse.SC_INTERNAL_SERVER_ERROR;
        try {
            chain.doFilter(request, response);
            failed = 0;
        } finally {
            if (request.isAsyncStarted()) WebGuard.endWithAsync(request, response, passage);
            else passage.end(failed == 0 ? response.getStatus() : failed);
        }
    }
}
