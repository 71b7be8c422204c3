package io.ratelimitd.spring;

import io.ratelimitd.http.ClientAddress;
import jakarta.servlet.http.HttpServletRequest;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.springframework.web.servlet.HandlerMapping;

/** In the expressions of a handler or filter: `ip`, `user`, `header('X-Tenant')`, `#request.getParameter('user')`. */
public final class WebContext extends CallContext {
    private final HttpServletRequest request;
    private final ClientAddress addresses;

    WebContext(String endpoint, HttpServletRequest request, ClientAddress addresses) {
        super(endpoint, Map.of("request", request));
        this.request = request;
        this.addresses = addresses;
    }

    /** The client's address, behind trusted proxies too. */
    public String getIp() {
        String peer = request.getRemoteAddr();
        return addresses.key(peer == null || peer.isEmpty() ? null : peer,
                name -> Collections.list(request.getHeaders(name)));
    }

    /** Who is logged in; else the address. The two never give the same key. */
    public String getUser() {
        String user = request.getRemoteUser();
        return ClientAddress.userKey(user, user == null ? getIp() : null);
    }

    public HttpServletRequest getRequest() {
        return request;
    }

    public String header(String name) {
        return request.getHeader(name);
    }

    /** Of the query, or of a form. */
    public String param(String name) {
        return request.getParameter(name);
    }

    /** A variable of the handler's path. */
    public String path(String name) {
        Object variables = request.getAttribute(HandlerMapping.URI_TEMPLATE_VARIABLES_ATTRIBUTE);
        return variables instanceof Map<?, ?> map && map.get(name) != null ? map.get(name).toString() : null;
    }

    @Override
    String address() {
        return getIp();
    }

    static List<String> variables() {
        return List.of("request");
    }
}
