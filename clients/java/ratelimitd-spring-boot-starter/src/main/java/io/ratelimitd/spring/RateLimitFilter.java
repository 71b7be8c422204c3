package io.ratelimitd.spring;

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.RequestDispatcher;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.springframework.http.server.RequestPath;
import org.springframework.web.util.WebUtils;

/**
 * Limits URLs, before a handler is looked for: also what ends as 404. All filters that match are decided together. It sees
 * forwards and includes within the server, too; a filter counts once a request.
 */
final class RateLimitFilter implements Filter {
    private static final String COUNTED = RateLimitFilter.class.getName() + ".counted";

    private final WebGuard guard;
    private final UrlLimits rules;

    RateLimitFilter(WebGuard guard, UrlLimits rules) {
        this.guard = guard;
        this.rules = rules;
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain) throws IOException, ServletException {
        if (request instanceof HttpServletRequest web && response instanceof HttpServletResponse plain
                && request.getDispatcherType() != DispatcherType.ERROR) filter(web, plain, chain);
        else chain.doFilter(request, response);
    }

    private void filter(HttpServletRequest request, HttpServletResponse plain, FilterChain chain)
            throws IOException, ServletException {
        boolean isWatched = WebUtils.getNativeResponse(plain, LimitedResponse.class) != null;
        HttpServletResponse response = isWatched ? plain : new LimitedResponse(plain);
        List<Limit> limits = uncounted(request);
        Passage passage = guard.enter(limits, UrlLimits.endpoint(limits), "", request, response);
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

    /** Those that this request has not come to before. */
    @SuppressWarnings("unchecked")
    private List<Limit> uncounted(HttpServletRequest request) {
        List<Limit> all = limits(request);
        if (all.isEmpty()) return all;
        Set<Limit> counted = (Set<Limit>) request.getAttribute(COUNTED);
        if (counted == null) request.setAttribute(COUNTED, counted = new HashSet<>());
        return all.stream().filter(counted::add).toList();
    }

    /** An included path is in attributes: the request itself keeps that of the one that includes. */
    private List<Limit> limits(HttpServletRequest request) {
        boolean isIncluded = request.getDispatcherType() == DispatcherType.INCLUDE;
        Object sent = isIncluded ? request.getAttribute(RequestDispatcher.INCLUDE_REQUEST_URI) : request.getRequestURI();
        Object servlet = isIncluded ? request.getAttribute(RequestDispatcher.INCLUDE_SERVLET_PATH) : request.getServletPath();
        Object more = isIncluded ? request.getAttribute(RequestDispatcher.INCLUDE_PATH_INFO) : request.getPathInfo();
        return rules.of(RequestPath.parse(Objects.toString(sent, "/"), request.getContextPath()).pathWithinApplication(),
                Objects.toString(servlet, "") + Objects.toString(more, ""));
    }
}
