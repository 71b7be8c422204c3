package example;

import static io.ratelimitd.spring.OnError.DENY;

import io.ratelimitd.Decision;
import io.ratelimitd.spring.Headers;
import io.ratelimitd.spring.RateLimit;
import io.ratelimitd.spring.RateLimitResponder;
import java.nio.charset.StandardCharsets;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;

/** A service with limits of every kind. $PORT is where it listens, $RATELIMIT_SOCKET is the daemon's socket. */
@SpringBootApplication
@RestController
public class Service {
    private static final MediaType TEXT = new MediaType(MediaType.TEXT_PLAIN, StandardCharsets.UTF_8);

    public static void main(String[] args) {
        SpringApplication app = new SpringApplication(Service.class);
        app.setAdditionalProfiles("attacks");
        app.run(args);
        System.out.println("ready");
    }

    private static ResponseEntity<String> text(int status, String line) {
        return ResponseEntity.status(status).contentType(TEXT).body(line);
    }

    @RateLimit(policy = "web")
    @GetMapping("/ok")
    ResponseEntity<String> ok() {
        return text(200, "ok\n");
    }

    @RateLimit(policy = "login", key = "join(param('user') ?: '-', ip)", onError = DENY, chargeWhen = "#status == 401")
    @PostMapping("/login")
    ResponseEntity<String> login(@RequestParam(defaultValue = "") String password) {
        return password.equals("right") ? text(200, "welcome\n") : text(401, "wrong\n");
    }

    @RateLimit(limit = 2, window = "5s")
    @GetMapping("/inline")
    ResponseEntity<String> inline() {
        return text(200, "inline\n");
    }

    @RateLimit(policy = "web")
    @RateLimit(policy = "tenant", key = "header('X-Tenant') ?: NOT_LIMITED")
    @GetMapping("/two")
    ResponseEntity<String> two() {
        return text(200, "two\n");
    }

    @RateLimit(policy = "slow", slot = true)
    @GetMapping("/slow")
    ResponseEntity<String> slow(@RequestParam long ms) throws InterruptedException {
        Thread.sleep(ms);
        return text(200, "slow\n");
    }

    /** The slot is held until the last chunk is written. */
    @RateLimit(policy = "stream", slot = true)
    @GetMapping("/stream")
    ResponseEntity<StreamingResponseBody> stream() {
        return ResponseEntity.ok().contentType(TEXT).body(out -> {
            for (String chunk : new String[] {"one\n", "two\n", "three\n"}) {
                out.write(chunk.getBytes());
                out.flush();
                if (!chunk.equals("three\n")) pause();
            }
        });
    }

    private static void pause() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @RateLimit(policy = "budget", cost = "param('n')")
    @GetMapping("/cost")
    ResponseEntity<String> cost(@RequestParam long n) {
        return text(200, "cost " + n + "\n");
    }

    @RateLimit(policy = "login", skip = "header('X-Probe') == 'yes'")
    @GetMapping("/skip")
    ResponseEntity<String> skip() {
        return text(200, "skip\n");
    }

    @RateLimit(policy = "web", onError = DENY)
    @GetMapping("/down")
    ResponseEntity<String> down() {
        return text(200, "down\n");
    }

    @RateLimit(limitExpression = "header('X-Plan') == 'gold' ? 3 : 1",
            windowExpression = "header('X-Plan') == 'gold' ? '30s' : '60s'", name = "plan")
    @GetMapping("/plan")
    ResponseEntity<String> plan() {
        return text(200, "plan\n");
    }

    @RateLimit(policyExpression = "param('policy') == 'free' ? NOT_LIMITED : param('policy')")
    @GetMapping("/choose")
    ResponseEntity<String> choose() {
        return text(200, "choose\n");
    }

    @RateLimit(policy = "web")
    @GetMapping("/left")
    ResponseEntity<String> left(@RequestAttribute(name = RateLimit.DECISION, required = false) Decision decision) {
        return text(200, decision == null ? "left unknown\n" : "left " + decision.remaining() + " of " + decision.of() + "\n");
    }

    @RateLimit(limit = 2, window = "1m", name = "guess", chargeWhen = "#status == 403")
    @GetMapping("/guess")
    ResponseEntity<String> guess(@RequestParam String right) {
        return right.equals("yes") ? text(200, "right\n") : text(403, "wrong\n");
    }

    @RateLimit(policy = "budget", cost = "param('n')", headers = Headers.BOTH)
    @GetMapping("/own")
    ResponseEntity<String> own() {
        return ResponseEntity.ok().header("X-RateLimit-Limit", "99").contentType(TEXT).body("own\n");
    }

    /** The answer to a denial of /own is the application's; all others get the usual one. */
    @Bean
    RateLimitResponder responder() {
        return (request, response, answer) -> {
            boolean isOwn = request.getRequestURI().equals("/own");
            response.setStatus(isOwn ? 418 : answer.status());
            response.setContentType(isOwn ? TEXT.toString() : answer.headers().get("Content-Type"));
            if (isOwn) {
                response.setHeader("Retry-After", "99");
                response.setIntHeader("X-RateLimit-Limit", 99);
            }
            response.getOutputStream().write((isOwn ? "slow down\n" : answer.body()).getBytes(StandardCharsets.UTF_8));
        };
    }
}
