package io.ratelimitd.spring;

import io.ratelimitd.http.HttpAnswer;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;

/** Writes the answer to a request of WebFlux that a limit has stopped. A bean of this type replaces the default. */
@FunctionalInterface
public interface ReactiveRateLimitResponder {
    /**
     * @param answer what the default would write: status 429 or 503, header fields (these are set in any case, except
     *               Content-Type) and a body
     */
    Mono<Void> respond(ServerWebExchange exchange, HttpAnswer answer);
}
