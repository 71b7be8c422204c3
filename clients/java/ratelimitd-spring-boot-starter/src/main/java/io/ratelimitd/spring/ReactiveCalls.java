package io.ratelimitd.spring;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Supplier;
import org.aopalliance.intercept.MethodInvocation;
import org.reactivestreams.Publisher;
import org.springframework.aop.ProxyMethodInvocation;
import org.springframework.core.ReactiveAdapter;
import org.springframework.core.ReactiveAdapterRegistry;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** Methods that return a Mono, a Flux, or a type of another such library: they are limited when somebody subscribes. */
final class ReactiveCalls {
    private static final int OK = 200;

    private ReactiveCalls() {
    }

    /** null: the method returns no such type. Completable futures are left to others. */
    static ReactiveAdapter adapter(Class<?> returned) {
        ReactiveAdapter adapter = ReactiveAdapterRegistry.getSharedInstance().getAdapter(returned);
        return adapter == null || CompletionStage.class.isAssignableFrom(returned) ? null : adapter;
    }

    /** @param enter asks; it fails if the call is denied */
    static Object limited(ReactiveAdapter adapter, MethodInvocation call, Supplier<CompletableFuture<Passage>> enter) {
        Flux<Object> values = Flux.usingWhen(Mono.fromFuture(enter, true), passage -> proceed(adapter, call),
                ReactiveCalls::end, (passage, error) -> end(passage), ReactiveCalls::end);
        return adapter.fromPublisher(adapter.isMultiValue() ? values : values.next());
    }

    private static Mono<Void> end(Passage passage) {
        return Mono.fromRunnable(() -> passage.end(OK));
    }

    private static Publisher<?> proceed(ReactiveAdapter adapter, MethodInvocation call) {
        try { /* each subscriber calls by itself */
            return adapter.toPublisher(((ProxyMethodInvocation) call).invocableClone().proceed());
        } catch (Throwable e) {
            return Mono.error(e);
        }
    }
}
