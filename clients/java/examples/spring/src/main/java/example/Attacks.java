package example;

import static io.ratelimitd.spring.OnError.ALLOW;
import static io.ratelimitd.spring.OnError.DENY;
import static org.springframework.web.bind.annotation.RequestMethod.DELETE;
import static org.springframework.web.bind.annotation.RequestMethod.GET;
import static org.springframework.web.bind.annotation.RequestMethod.HEAD;
import static org.springframework.web.bind.annotation.RequestMethod.OPTIONS;
import static org.springframework.web.bind.annotation.RequestMethod.PATCH;
import static org.springframework.web.bind.annotation.RequestMethod.POST;
import static org.springframework.web.bind.annotation.RequestMethod.PUT;

import io.ratelimitd.spring.RateLimit;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.json.JsonParseException;
import org.springframework.boot.json.JsonParserFactory;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Profile;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.stereotype.Component;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.filter.OncePerRequestFilter;
import org.springframework.web.servlet.HandlerInterceptor;
import org.springframework.web.servlet.ModelAndView;
import org.springframework.web.servlet.config.annotation.CorsRegistry;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.servlet.mvc.method.RequestMappingInfo;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;

/** The routes of clients/conformance/attacks.yaml. What stands around endpoints is a filter in application-attacks.yaml. */
@Profile("attacks")
@RestController
@RequestMapping("/attack")
class Attacks {
    private static final MediaType TEXT = new MediaType(MediaType.TEXT_PLAIN, StandardCharsets.UTF_8);

    @Autowired
    private Accounts accounts;

    private static ResponseEntity<String> say(String line) {
        return ResponseEntity.ok().contentType(TEXT).body(line + "\n");
    }

    /** Spring itself answers OPTIONS, unless a handler names it. */
    @RateLimit(policy = "never", onError = DENY)
    @RequestMapping(path = "/any", method = {GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS})
    ResponseEntity<String> any() {
        return say("any");
    }

    @RateLimit(policy = "never", skip = "preflight")
    @RequestMapping(path = "/preflight", method = {GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS})
    ResponseEntity<String> preflight() {
        return say("preflight");
    }

    @RateLimit(policy = "never", key = "header('X-Api-Key')")
    @GetMapping("/key")
    ResponseEntity<String> key() {
        return say("key");
    }

    @RateLimit(policy = "never", key = "header('X-Api-Key')", onError = ALLOW)
    @GetMapping("/key-allowed")
    ResponseEntity<String> keyAllowed() {
        return say("key-allowed");
    }

    @RateLimit(policy = "never", key = "header('X-Api-Key')")
    @GetMapping("/key-said")
    ResponseEntity<String> keySaid() {
        return say("key-said");
    }

    @PostMapping("/json")
    ResponseEntity<String> json(@RequestBody(required = false) String body) {
        accounts.count(userOf(body));
        return say("json");
    }

    private static String userOf(String body) {
        try {
            return JsonParserFactory.getJsonParser().parseMap(body == null ? "" : body).get("user") instanceof String user ? user : null;
        } catch (JsonParseException e) {
            return null;
        }
    }

    @RateLimit(policy = "never", key = "join(ip, header('X-Api-Key'))")
    @GetMapping("/parts")
    ResponseEntity<String> parts() {
        return say("parts");
    }

    @RateLimit(policy = "never", key = "param('user')")
    @GetMapping("/param")
    ResponseEntity<String> param() {
        return say("param");
    }

    @RateLimit(policy = "never", key = "header('X-Exempt') == 'yes' ? NOT_LIMITED : ip")
    @GetMapping("/exempt")
    ResponseEntity<String> exempt() {
        return say("exempt");
    }

    @RateLimit(policy = "pair", key = "user(header('X-User'))")
    @GetMapping("/user")
    ResponseEntity<String> user() {
        return say("user");
    }

    @RateLimit(policy = "never", key = "user(#request.getAttribute('nobody').name)")
    @GetMapping("/user-broken")
    ResponseEntity<String> userBroken() {
        return say("user-broken");
    }

    @RateLimit(policy = "pair", key = "user(#request.getAttribute('found'))")
    @GetMapping({"/late-hook"})
    ResponseEntity<String> lateHook() {
        return say("late-hook");
    }

    @RateLimit(policy = "pair", key = "user(#request.getAttribute('guarded'))")
    @GetMapping("/late-guard")
    ResponseEntity<String> lateGuard() {
        return say("late-guard");
    }

    @GetMapping("/forward")
    ModelAndView forward() {
        return new ModelAndView("forward:/attack/forwarded");
    }

    @RateLimit(policy = "pair")
    @GetMapping("/forwarded")
    ResponseEntity<String> forwarded() {
        return say("forwarded");
    }

    @RateLimit(policy = "web")
    @GetMapping("/redirect")
    ModelAndView redirect() {
        return new ModelAndView("forward:/attack/redirected");
    }

    @RateLimit(policy = "web")
    @GetMapping("/redirected")
    ResponseEntity<String> redirected() {
        return say("redirected");
    }

    @GetMapping("/raw/{rest}")
    ResponseEntity<String> raw(@PathVariable String rest) {
        return say("raw");
    }

    @RateLimit(policy = "web")
    @GetMapping("/outer/twice")
    ResponseEntity<String> twice() {
        return say("twice");
    }

    @RateLimit(policy = "web", cost = "5")
    @GetMapping("/outer/cost")
    ResponseEntity<String> cost() {
        return say("cost");
    }

    @RateLimit(policy = "pair")
    @GetMapping("/outer/inner")
    ResponseEntity<String> inner() {
        return say("inner");
    }

    @RateLimit(policy = "never", key = "header('X-Api-Key')")
    @GetMapping("/outer/key")
    ResponseEntity<String> outerKey() {
        return say("key");
    }

    @RateLimit(policy = "never")
    @GetMapping("/strict/inner")
    ResponseEntity<String> strict() {
        return say("inner");
    }

    @RateLimit(policy = "web", chargeWhen = "#status == 200 ? 5 : 0")
    @GetMapping("/number")
    ResponseEntity<String> number() {
        return say("number");
    }

    @RateLimit(limit = 2, window = "1m")
    @GetMapping("/names/factory/a")
    ResponseEntity<String> overloaded(HttpServletRequest request) {
        return say("a");
    }

    @RateLimit(limit = 2, window = "1m")
    @GetMapping("/names/factory/b")
    ResponseEntity<String> overloaded(HttpServletResponse response) {
        return say("b");
    }

    @RateLimit(limit = 2, window = "1m")
    @GetMapping("/names/method")
    ResponseEntity<String> method() {
        return say("method");
    }

    @RateLimit(limit = 2, window = "1m")
    @PostMapping("/names/method")
    ResponseEntity<String> methodToo() {
        return say("method");
    }

    @RateLimit(limit = 2, window = "1m")
    @RequestMapping(path = "/names/both", method = {GET, POST})
    ResponseEntity<String> both() {
        return say("both");
    }

    @RateLimit(limit = 2, window = "1m")
    @GetMapping("/names/item/{id}")
    ResponseEntity<String> item(@PathVariable String id) {
        return say("item");
    }

    @RateLimit(limit = 2, window = "1m", endpoint = "shared")
    @GetMapping("/names/shared-a")
    ResponseEntity<String> sharedA() {
        return say("shared-a");
    }

    @RateLimit(limit = 2, window = "1m", endpoint = "shared")
    @GetMapping("/names/shared-b")
    ResponseEntity<String> sharedB() {
        return say("shared-b");
    }

    @RateLimit(limitExpression = "param('limit')", window = "1m", key = "'moves'")
    @GetMapping("/moves")
    ResponseEntity<String> moves() {
        return say("moves");
    }

    /** Two objects of one class, and one module at two places. */
    static final class Module {
        private final String line;

        Module(String line) {
            this.line = line;
        }

        @RateLimit(limit = 2, window = "1m")
        public ResponseEntity<String> get() {
            return say(line);
        }
    }

    @Autowired
    void map(@Qualifier("requestMappingHandlerMapping") RequestMappingHandlerMapping mapping) throws NoSuchMethodException {
        for (String path : new String[] {"lambda/a", "lambda/b", "mounted-a/x", "mounted-b/x"})
            mapping.registerMapping(RequestMappingInfo.paths("/attack/names/" + path).methods(GET)
                    .options(mapping.getBuilderConfiguration()).build(), new Module(path.substring(path.length() - 1)),
                    Module.class.getMethod("get"));
    }

    /** The body of a request is known to its handler, so a limit by it is at what the handler calls. */
    @Profile("attacks")
    @Component
    public static class Accounts {
        @RateLimit(policy = "never", key = "#user")
        public void count(String user) {
        }
    }

    @Profile("attacks")
    @Configuration(proxyBeanMethods = false)
    static class Layers implements WebMvcConfigurer {
        /** Spring answers the preflights of others itself: without this, version 7 with 200, and no handler runs. */
        @Override
        public void addCorsMappings(CorsRegistry registry) {
            registry.addMapping("/attack/any").allowedOrigins("https://trusted.example");
        }

        /** Behind the limiter's filter. */
        @Bean
        OncePerRequestFilter finds() {
            return new OncePerRequestFilter() {
                @Override
                protected void doFilterInternal(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
                        throws ServletException, IOException {
                    request.setAttribute("found", request.getHeader("X-User"));
                    chain.doFilter(request, response);
                }
            };
        }

        @Override
        public void addInterceptors(InterceptorRegistry registry) {
            registry.addInterceptor(new HandlerInterceptor() {
                @Override
                public boolean preHandle(HttpServletRequest request, HttpServletResponse response, Object handler) {
                    request.setAttribute("guarded", request.getHeader("X-User"));
                    if (request.getHeader("X-User") == null) response.setStatus(HttpServletResponse.SC_UNAUTHORIZED);
                    return request.getHeader("X-User") != null;
                }
            }).addPathPatterns("/attack/late-guard");
        }
    }
}
