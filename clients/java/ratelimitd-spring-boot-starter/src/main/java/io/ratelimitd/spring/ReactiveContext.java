package io.ratelimitd.spring;

import io.ratelimitd.http.ClientAddress;
import java.net.InetSocketAddress;
import java.security.Principal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.springframework.context.ApplicationContext;
import org.springframework.util.ClassUtils;
import org.springframework.util.LinkedMultiValueMap;
import org.springframework.util.MultiValueMap;
import org.springframework.web.reactive.HandlerMapping;
import org.springframework.web.server.ServerWebExchange;
import org.springframework.web.server.ServerWebExchangeDecorator;
import org.springframework.web.server.WebFilter;
import reactor.core.publisher.Mono;

/** A request of WebFlux in expressions; it is `#request`, too, and the whole is `#exchange`. */
public final class ReactiveContext extends RequestContext {
    static final Expressions EXPRESSIONS = new Expressions(ReactiveContext.class, List.of("request", "exchange", "preflight"));

    private final ServerWebExchange exchange;
    private final MultiValueMap<String, String> form;
    private final String login; /* empty: no one */

    private ReactiveContext(String endpoint, String handler, ServerWebExchange exchange, ClientAddress addresses, String login,
                            MultiValueMap<String, String> form) {
        super(endpoint, handler, Map.of("request", exchange.getRequest(), "exchange", exchange), addresses);
        this.exchange = exchange;
        this.form = form;
        this.login = login;
        evaluation().setVariable("preflight", isPreflight());
    }

    /** @param readsForm takes the form out of the body; the handler gets it from the exchange too */
    static Mono<ReactiveContext> of(String endpoint, String handler, ServerWebExchange exchange, ClientAddress addresses,
                                    boolean readsForm) {
        Mono<String> login = exchange.getPrincipal().map(Principal::getName).defaultIfEmpty("");
        MultiValueMap<String, String> none = new LinkedMultiValueMap<>();
        Mono<MultiValueMap<String, String>> form = readsForm ? exchange.getFormData().defaultIfEmpty(none) : Mono.just(none);
        return Mono.zip(login, form, (user, fields) -> new ReactiveContext(endpoint, handler, exchange, addresses, user, fields));
    }

    public ServerWebExchange getExchange() {
        return exchange;
    }

    @Override
    public String param(String name) {
        String value = exchange.getRequest().getQueryParams().getFirst(name);
        return value != null ? value : form.getFirst(name);
    }

    @Override
    public String path(String name) {
        Object variables = exchange.getAttribute(HandlerMapping.URI_TEMPLATE_VARIABLES_ATTRIBUTE);
        return variables instanceof Map<?, ?> map && map.get(name) != null ? map.get(name).toString() : null;
    }

    @Override
    String peer() {
        InetSocketAddress peer = exchange.getRequest().getRemoteAddress();
        return peer == null || peer.getAddress() == null ? null : peer.getAddress().getHostAddress();
    }

    @Override
    String login() {
        return login.isEmpty() ? null : login;
    }

    /** A filter that finds users answers in place of the exchange, as Spring Security's does. One of the application may do so
     * only for those that it knows. */
    @Override
    boolean hasUserLayer() {
        ServerWebExchange one = exchange;
        while (one instanceof ServerWebExchangeDecorator decorator) {
            Class<?> type = ClassUtils.getMethod(decorator.getClass(), "getPrincipal").getDeclaringClass();
            if (type != ServerWebExchangeDecorator.class) return true;
            one = decorator.getDelegate();
        }
        ApplicationContext application = exchange.getApplicationContext();
        return application == null || application.getBeanProvider(WebFilter.class).stream()
                .anyMatch(filter -> isOfApplication(filter.getClass().getName()));
    }

    @Override
    List<String> headers(String wanted) {
        List<String> values = new ArrayList<>();
        exchange.getRequest().getHeaders().forEach((name, lines) -> { /* the one form that Spring 6 and 7 both have */
            if (name.equalsIgnoreCase(wanted)) values.addAll(lines);
        });
        return values;
    }

    @Override
    String method() {
        return exchange.getRequest().getMethod().name();
    }
}
