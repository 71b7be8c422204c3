package io.ratelimitd.spring;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.springframework.http.server.PathContainer;
import org.springframework.util.StringUtils;
import org.springframework.web.util.UriUtils;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** The limits of `ratelimitd.filters`. */
final class UrlLimits {
    /**
     * A limit counts if its pattern has one of the paths. What is excluded must be so by each of them: one part of a server
     * may go by the path as it was sent, and another by the same in its normal form.
     */
    private record Rule(PathPattern pattern, List<PathPattern> excluded, Limit limit) {
        boolean matches(List<PathContainer> paths) {
            boolean isExcluded = paths.stream().allMatch(path -> excluded.stream().anyMatch(one -> one.matches(path)));
            return !isExcluded && paths.stream().anyMatch(path -> pattern.matches(path) || pattern.matches(withoutSlash(path)));
        }
    }

    private final List<Rule> rules = new ArrayList<>();

    /** @throws InvalidLimitException one cannot be meant so */
    UrlLimits(List<RateLimitProperties.Filter> filters, Expressions expressions, Policies policies) {
        for (RateLimitProperties.Filter filter : filters) {
            if (!filter.enabled()) continue;
            String where = "ratelimitd.filters of " + filter.pattern();
            Limit limit = Limit.of(filter.declared(), where, filter.endpoint().isEmpty() ? filter.pattern() : filter.endpoint(),
                    expressions);
            if (!limit.pathNames().isEmpty())
                throw new InvalidLimitException(where, "a filter comes before the handler, so the path has no variable `"
                        + limit.pathNames().get(0) + "` there");
            rules.add(new Rule(parsed(filter.pattern(), where),
                    filter.exclude().stream().map(one -> parsed(one, where)).toList(), limit));
            policies.declare(List.of(limit), where);
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

    /**
     * @param sent       the path as the client has sent it, without that of the application
     * @param dispatched the decoded path by which a handler is looked for
     */
    List<Limit> of(PathContainer sent, String dispatched) {
        List<PathContainer> paths = List.of(sent, container(dispatched), container(normal(dispatched)));
        return rules.stream().filter(rule -> rule.matches(paths)).map(Rule::limit).toList();
    }

    /** Without empty segments and dots. */
    private static String normal(String path) {
        String clean = StringUtils.cleanPath(path.replaceAll("/{2,}", "/"));
        return clean.startsWith("/") ? clean.replaceFirst("^(/\\.\\.)+(?=/|$)", "") : "/" + clean;
    }

    /** Of a decoded path: what looks encoded in it is text. */
    private static PathContainer container(String decoded) {
        return PathContainer.parsePath(UriUtils.encodePath(decoded, StandardCharsets.UTF_8).replace(";", "%3B"));
    }

    private static PathContainer withoutSlash(PathContainer path) {
        int n = path.elements().size();
        while (n > 1 && path.elements().get(n - 1) instanceof PathContainer.Separator) n--;
        return path.subPath(0, n);
    }

    static String endpoint(List<Limit> limits) {
        return limits.isEmpty() ? "" : limits.get(0).endpoint();
    }
}
