package io.ratelimitd.spring;

import io.ratelimitd.http.HttpAnswer;
import org.springframework.core.Ordered;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.WebExceptionHandler;
import reactor.core.publisher.Mono;

/** In WebFlux: a denial in a bean is 429 in the request that has called it, no answer of the daemon 503. */
record ReactiveExceptionHandler(ReactiveGuard guard, Answers answers) implements WebExceptionHandler, Ordered {
    @Override
    public int getOrder() {
        return -2; /* before that of Spring Boot, which answers everything */
    }

    @Override
    public Mono<Void> handle(ServerWebExchange exchange, Throwable error) {
        HttpAnswer answer = answers.refusal(error, exchange.getRequest().getHeaders().getFirst("Accept"));
        if (answer == null || exchange.getResponse().isCommitted()) return Mono.error(error);
        return guard.respond(exchange, answer);
    }
}
