package io.ratelimitd.spring;

import io.ratelimitd.http.ClientAddress;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** In the expressions of a handler or filter: `ip`, `user`, `header('X-Tenant')`, `param('user')`, `path('id')`. */
public abstract class RequestContext extends CallContext {
    private final ClientAddress addresses;

    private final String handler;

    RequestContext(String endpoint, String handler, Map<String, Object> variables, ClientAddress addresses) {
        super(endpoint, variables);
        this.handler = handler;
        this.addresses = addresses;
    }

    @Override
    String handler() {
        return handler.isEmpty() ? getEndpoint() : handler;
    }

    /** The client's address, behind trusted proxies too. */
    public String getIp() {
        return addresses.key(peer(), this::headers);
    }

    /**
     * Who is logged in; else the address. The two never give the same key.
     *
     * @throws IllegalStateException nothing here finds users, so no one can be logged in
     */
    public String getUser() {
        String user = login();
        if (user == null && !hasUserLayer())
            throw new IllegalStateException("`user`: nothing in front of this limit finds out who is logged in, such as Spring"
                    + " Security (filter-order -110 is before it); give the name yourself: user(...)");
        return user(user);
    }

    /** The same for a name that the application has found. null: the address; empty: no key. */
    public String user(String name) {
        return name != null && name.isEmpty() ? null : ClientAddress.userKey(name, name == null ? getIp() : null);
    }

    /** For `skip`, where a layer behind the limit answers the preflights of CORS. Everyone can send these: it is safe only
     * where no handler answers OPTIONS. */
    public boolean isPreflight() {
        return method().equals("OPTIONS") && header("Origin") != null && header("Access-Control-Request-Method") != null;
    }

    /** null: the request does not have it. */
    public String header(String name) {
        List<String> values = headers(name);
        return values.isEmpty() ? null : values.get(0);
    }

    /** Of the query, or of a form. null: the request does not have it. */
    public abstract String param(String name);

    /** A variable of the handler's path. null: it has none of this name. */
    public abstract String path(String name);

    /** The address of the connection; null: it has none. */
    abstract String peer();

    /** Who is logged in; null: no one is logged in. */
    abstract String login();

    abstract List<String> headers(String name);

    abstract String method();

    @Override
    String address() {
        return getIp();
    }

    /** Is it a filter that the application has written, not one of Spring, its server or this starter? */
    static boolean isOfApplication(String filter) {
        return Stream.of("org.springframework.", "org.apache.", "io.ratelimitd.spring.").noneMatch(filter::startsWith);
    }

    /** May anything in front of the limit find out who is logged in? */
    abstract boolean hasUserLayer();
}
