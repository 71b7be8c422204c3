package io.ratelimitd.spring;

import io.ratelimitd.http.HttpAnswer;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.springframework.core.Ordered;
import org.springframework.web.servlet.HandlerExceptionResolver;
import org.springframework.web.servlet.ModelAndView;

/** A denial in a bean is 429 in the request that has called it, no answer of the daemon 503; unless the application
 * handles the exception itself. */
record RateLimitExceptionResolver(WebGuard guard, Answers answers) implements HandlerExceptionResolver, Ordered {
    @Override
    public int getOrder() {
        return LOWEST_PRECEDENCE - 1; /* after those of the application */
    }

    @Override
    public ModelAndView resolveException(HttpServletRequest request, HttpServletResponse response, Object handler,
                                         Exception error) {
        if (request.getDispatcherType() == DispatcherType.INCLUDE) return null; /* the request that includes is answered */
        boolean isOfInclude = error instanceof ServletException && error.getCause() != null;
        HttpAnswer answer = answers.refusal(isOfInclude ? error.getCause() : error, request.getHeader("Accept"));
        if (answer == null || response.isCommitted()) return null;
        try {
            guard.respond(request, response, answer);
        } catch (IOException e) {
            return null;
        }
        return new ModelAndView(); /* it is answered */
    }
}
