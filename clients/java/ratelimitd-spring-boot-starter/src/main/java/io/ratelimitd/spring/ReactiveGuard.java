package io.ratelimitd.spring;

import io.ratelimitd.Decision;
import io.ratelimitd.http.HttpAnswer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.springframework.http.HttpStatusCode;
import org.springframework.http.MediaType;
import org.springframework.http.server.reactive.ServerHttpResponse;
import org.springframework.web.server.ServerWebExchange;
import reactor.core.publisher.Mono;
import reactor.core.publisher.SignalType;
import reactor.core.scheduler.Schedulers;

/** The guard of exchanges of WebFlux: the verdict becomes header fields, and where it is no, the answer. */
final class ReactiveGuard {
    private static final String PASSAGES = ReactiveGuard.class.getName() + ".passages";
    private static final String PASSAGE = ReactiveGuard.class.getName() + ".passage"; /* the last one of the request */
    private static final int OK = 200;

    private final Guard guard;
    private final Answers answers;
    private final ReactiveRateLimitResponder responder;

    ReactiveGuard(Guard guard, Answers answers, ReactiveRateLimitResponder responder) {
        this.guard = guard;
        this.answers = answers;
        this.responder = responder;
    }

    /** The first filter that sees an exchange: what the limits hold is given back at its end. */
    Mono<Void> watched(ServerWebExchange exchange, Supplier<Mono<Void>> goesOn) {
        List<Passage> passages = new CopyOnWriteArrayList<>();
        exchange.getAttributes().put(PASSAGES, passages);
        return Mono.defer(goesOn).doFinally(signal -> passages.forEach(passage -> end(passage, exchange, signal)));
    }

    private static void end(Passage passage, ServerWebExchange exchange, SignalType signal) {
        if (signal == SignalType.CANCEL) passage.leave();
        else if (signal == SignalType.ON_COMPLETE) passage.end(status(exchange));
        else passage.release(); /* an error becomes a status outside of the filters; that settles */
    }

    private static int status(ServerWebExchange exchange) {
        HttpStatusCode status = exchange.getResponse().getStatusCode();
        return status == null ? OK : status.value();
    }

    /** Empty: the request was answered, and goes no further. */
    <T> Mono<T> enter(List<Limit> limits, String endpoint, String handler, ServerWebExchange exchange, Supplier<Mono<T>> goesOn) {
        if (limits.isEmpty()) return goesOn.get();
        return Mono.defer(() -> ask(limits, endpoint, handler, exchange, Spans.current(), goesOn));
    }

    private <T> Mono<T> ask(List<Limit> limits, String endpoint, String handler, ServerWebExchange exchange,
                            Consumer<Decision> span, Supplier<Mono<T>> goesOn) {

        boolean readsForm = limits.stream().anyMatch(Limit::readsParameters);
        return ReactiveContext.of(endpoint, handler, exchange, answers.addresses(), readsForm).flatMap(context -> {
            answers.warnOfProxies(context);
            Passage passage = new Passage(context, exchange.getAttribute(PASSAGE));
            exchange.getAttributes().put(PASSAGE, passage);
            List<Passage> passages = exchange.getAttribute(PASSAGES);
            if (passages != null) passages.add(passage);
            return Mono.fromFuture(() -> guard.enterAsync(limits, passage), true)
                    .publishOn(Schedulers.parallel()) /* not the client's threads: the handler comes next */
                    .flatMap(decided -> goOn(decided, exchange, span, goesOn));
        });
    }

    private <T> Mono<T> goOn(Passage passage, ServerWebExchange exchange, Consumer<Decision> span, Supplier<Mono<T>> goesOn) {
        Decision decision = passage.decision();
        span.accept(decision);
        if (decision != null) exchange.getAttributes().put(RateLimit.DECISION, decision);

        HttpAnswer refusal = answers.refusal(passage, exchange.getRequest().getHeaders().getFirst("Accept"));
        if (refusal != null) return respond(exchange, refusal).then(Mono.empty());

        report(exchange.getResponse(), answers.fields(passage), passage.reported());
        exchange.getResponse().beforeCommit(() -> Mono.fromFuture(() -> passage.settle(status(exchange)), true));
        return goesOn.get();
    }

    Mono<Void> respond(ServerWebExchange exchange, HttpAnswer answer) {
        Passage passage = exchange.getAttribute(PASSAGE);
        report(exchange.getResponse(), answer.headers(), passage == null ? new HashMap<>() : passage.reported());
        return responder.respond(exchange, answer);
    }

    /** At the last moment: what the application has set under the same name is replaced, or ours is added to its list. */
    private static void report(ServerHttpResponse response, Map<String, String> fields, Map<String, String> reported) {
        response.beforeCommit(() -> Mono.fromRunnable(() -> fields.forEach((name, value) -> {
            if (name.equals("Content-Type")) return;
            String before = Answers.isList(name) ? response.getHeaders().getFirst(name) : null;
            response.getHeaders().set(name, Answers.joined(name, before, value, reported));
        })));
    }

    static Mono<Void> respondByDefault(ServerWebExchange exchange, HttpAnswer answer) {
        ServerHttpResponse response = exchange.getResponse();
        byte[] body = answer.body().getBytes(StandardCharsets.UTF_8);
        response.setStatusCode(HttpStatusCode.valueOf(answer.status()));
        response.getHeaders().setContentType(MediaType.parseMediaType(answer.headers().get("Content-Type")));
        response.getHeaders().setContentLength(body.length);
        return response.writeWith(Mono.fromSupplier(() -> response.bufferFactory().wrap(body)));
    }
}
