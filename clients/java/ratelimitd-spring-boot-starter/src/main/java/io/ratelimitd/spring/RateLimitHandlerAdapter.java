package io.ratelimitd.spring;

import org.springframework.beans.factory.ObjectProvider;
import org.springframework.core.Ordered;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.reactive.HandlerAdapter;
import org.springframework.web.reactive.HandlerResult;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;

/** In WebFlux: stands in front of the adapter that runs the handlers of controllers, and limits those that have limits. */
final class RateLimitHandlerAdapter implements HandlerAdapter, Ordered {
    private final ReactiveGuard guard;
    private final HandlerLimits limits;
    private final ObjectProvider<HandlerAdapter> adapters;

    RateLimitHandlerAdapter(ReactiveGuard guard, HandlerLimits limits, ObjectProvider<HandlerAdapter> adapters) {
        this.guard = guard;
        this.limits = limits;
        this.adapters = adapters;
    }

    @Override
    public int getOrder() {
        return HIGHEST_PRECEDENCE;
    }

    @Override
    public boolean supports(Object handler) {
        return handler instanceof HandlerMethod method && !limits.of(method).isEmpty();
    }

    @Override
    public Mono<HandlerResult> handle(ServerWebExchange exchange, Object handler) {
        HandlerMethod method = (HandlerMethod) handler;
        HandlerAdapter next = adapters.orderedStream().filter(one -> one != this && one.supports(handler)).findFirst()
                .orElseThrow(() -> new IllegalStateException("no adapter runs " + handler));
        return guard.enter(limits.of(method), limits.endpoint(method), HandlerLimits.handler(method), exchange,
                () -> next.handle(exchange, handler));
    }
}
