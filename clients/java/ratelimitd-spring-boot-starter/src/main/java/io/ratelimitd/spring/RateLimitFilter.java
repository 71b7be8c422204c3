package io.ratelimitd.spring;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.springframework.core.Ordered;
import org.springframework.http.server.PathContainer;
import org.springframework.http.server.RequestPath;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** Limits URLs, before a handler is looked for: also what ends as 404. All filters that match are decided together. */
final class RateLimitFilter extends OncePerRequestFilter implements Ordered {
    private static final Expressions EXPRESSIONS = new Expressions(WebContext.class, WebContext.variables());

    private record Rule(PathPattern pattern, List<PathPattern> excluded, Limit limit) {
        boolean matches(PathContainer path) {
            return pattern.matches(path) && excluded.stream().noneMatch(one -> one.matches(path));
        }
    }

    private final WebGuard guard;
    private final Policies policies;
    private final int order;
    private final List<Rule> rules = new ArrayList<>();

    RateLimitFilter(WebGuard guard, Policies policies, List<RateLimitProperties.Filter> filters, int order) {
        this.guard = guard;
        this.policies = policies;
        this.order = order;
        for (RateLimitProperties.Filter filter : filters) {
            if (!filter.enabled()) continue;
            String where = "ratelimitd.filters of " + filter.pattern();
            Limit limit = Limit.of(filter.declared(), where, filter.pattern(), EXPRESSIONS);
            rules.add(new Rule(parsed(filter.pattern(), where),
                    filter.exclude().stream().map(one -> parsed(one, where)).toList(), limit));
            policies.declare(List.of(limit));
        }
    }

    private static PathPattern parsed(String pattern, String where) {
        try {
            return PathPatternParser.defaultInstance.parse(pattern);
        } catch (RuntimeException e) {
            throw new IllegalStateException(where + ": `" + pattern + "` is not a pattern: " + e.getMessage(), e);
        }
    }

    @Override
    public int getOrder() {
        return order;
    }

    @Override
    protected void doFilterInternal(HttpServletRequest request, HttpServletResponse plain, FilterChain chain)
            throws ServletException, IOException {
        HttpServletResponse response = policies.haveChargeWhen() ? new BodyWatch(plain) : plain;
        PathContainer path = RequestPath.parse(request.getRequestURI(), request.getContextPath())
                .pathWithinApplication();
        List<Limit> limits = rules.stream().filter(rule -> rule.matches(path)).map(Rule::limit).toList();
        String endpoint = limits.isEmpty() ? "" : limits.get(0).endpoint();
        Passage passage = guard.enter(limits, endpoint, request, response);
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
