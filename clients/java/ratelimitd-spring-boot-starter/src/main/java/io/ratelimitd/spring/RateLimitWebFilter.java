package io.ratelimitd.spring;

import java.util.List;
import org.springframework.core.Ordered;
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
        List<Limit> limits = rules.of(exchange.getRequest().getPath().pathWithinApplication());
        return guard.watched(exchange,
                () -> guard.enter(limits, UrlLimits.endpoint(limits), exchange, () -> chain.filter(exchange)));
    }
}
