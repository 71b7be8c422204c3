package io.ratelimitd.spring;

import java.util.ArrayList;
import java.util.List;
import org.springframework.http.server.PathContainer;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** The limits of `ratelimitd.filters`. */
final class UrlLimits {
    private record Rule(PathPattern pattern, List<PathPattern> excluded, Limit limit) {
        boolean matches(PathContainer path) {
            return pattern.matches(path) && excluded.stream().noneMatch(one -> one.matches(path));
        }
    }

    private final List<Rule> rules = new ArrayList<>();

    /** @throws InvalidLimitException one cannot be meant so */
    UrlLimits(List<RateLimitProperties.Filter> filters, Expressions expressions, Policies policies) {
        for (RateLimitProperties.Filter filter : filters) {
            if (!filter.enabled()) continue;
            String where = "ratelimitd.filters of " + filter.pattern();
            Limit limit = Limit.of(filter.declared(), where, filter.pattern(), expressions);
            rules.add(new Rule(parsed(filter.pattern(), where),
                    filter.exclude().stream().map(one -> parsed(one, where)).toList(), limit));
            policies.declare(List.of(limit));
        }
    }

    private static PathPattern parsed(String pattern, String where) {
        try {
            return PathPatternParser.defaultInstance.parse(pattern);
        } catch (RuntimeException e) {
            throw new InvalidLimitException(where, new IllegalArgumentException("`" + pattern + "` is not a pattern: "
                    + e.getMessage(), e));
        }
    }

    List<Limit> of(PathContainer path) {
        return rules.stream().filter(rule -> rule.matches(path)).map(Rule::limit).toList();
    }

    static String endpoint(List<Limit> limits) {
        return limits.isEmpty() ? "" : limits.get(0).endpoint();
    }
}
