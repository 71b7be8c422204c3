package io.ratelimitd.spring;

import java.util.List;
import java.util.stream.Collectors;
import org.springframework.core.Ordered;
import org.springframework.http.server.PathContainer;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebFilter;
import org.springframework.web.server.WebFilterChain;
import reactor.core.publisher.Mono;

/** In WebFlux: limits URLs before a handler is looked for, and ends what the handler's limits hold. */
record RateLimitWebFilter(ReactiveGuard guard, UrlLimits rules, int order) implements WebFilter, Ordered {
    @Override
    public int getOrder() {
        return order;
    }

    @Override
    public Mono<Void> filter(ServerWebExchange exchange, WebFilterChain chain) {
        PathContainer sent = exchange.getRequest().getPath().pathWithinApplication();
        List<Limit> limits = rules.of(sent, decoded(sent));
        return guard.watched(exchange,
                () -> guard.enter(limits, UrlLimits.endpoint(limits), "", exchange, () -> chain.filter(exchange)));
    }

    /** Without the parameters of its segments. */
    private static String decoded(PathContainer path) {
        return path.elements().stream().map(element -> element instanceof PathContainer.PathSegment segment
                ? segment.valueToMatch() : element.value()).collect(Collectors.joining());
    }
}
