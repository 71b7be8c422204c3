package io.ratelimitd.spring;

import io.ratelimitd.http.ClientAddress;
import java.util.List;
import java.util.Map;

/** In the expressions of a handler or filter: `ip`, `user`, `header('X-Tenant')`, `param('user')`, `path('id')`. */
public abstract class RequestContext extends CallContext {
    private final ClientAddress addresses;

    RequestContext(String endpoint, Map<String, Object> variables, ClientAddress addresses) {
        super(endpoint, variables);
        this.addresses = addresses;
    }

    /** The client's address, behind trusted proxies too. */
    public String getIp() {
        return addresses.key(peer(), this::headers);
    }

    /** Who is logged in; else the address. The two never give the same key. */
    public String getUser() {
        String user = login();
        return ClientAddress.userKey(user, user == null ? getIp() : null);
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

    /** The browser asks whether it may send the request itself. */
    boolean isPreflight() {
        return method().equals("OPTIONS") && header("Access-Control-Request-Method") != null;
    }
}
