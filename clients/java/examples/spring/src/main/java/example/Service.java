package example;

import static io.ratelimitd.spring.OnError.DENY;

import io.ratelimitd.spring.RateLimit;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.mvc.method.annotation.StreamingResponseBody;

/** A service with limits of every kind. $PORT is where it listens, $RATELIMIT_SOCKET is the daemon's socket. */
@SpringBootApplication
@RestController
public class Service {
    private static final String TEXT = "text/plain; charset=utf-8";

    public static void main(String[] args) {
        SpringApplication.run(Service.class, args);
        System.out.println("ready");
    }

    @RateLimit(policy = "web")
    @GetMapping(path = "/ok", produces = TEXT)
    String ok() {
        return "ok\n";
    }

    @RateLimit(policy = "login", key = "param('user')", onError = DENY, chargeWhen = "#status == 401")
    @PostMapping(path = "/login", produces = TEXT)
    ResponseEntity<String> login(@RequestParam String password) {
        return password.equals("right") ? ResponseEntity.ok("welcome\n") : ResponseEntity.status(401).body("wrong\n");
    }

    @RateLimit(limit = 2, window = "5s")
    @GetMapping(path = "/inline", produces = TEXT)
    String inline() {
        return "inline\n";
    }

    @RateLimit(policy = "web")
    @RateLimit(policy = "tenant", key = "header('X-Tenant')")
    @GetMapping(path = "/two", produces = TEXT)
    String two() {
        return "two\n";
    }

    @RateLimit(policy = "slow", slot = true)
    @GetMapping(path = "/slow", produces = TEXT)
    String slow(@RequestParam long ms) throws InterruptedException {
        Thread.sleep(ms);
        return "slow\n";
    }

    /** The slot is held until the last chunk is written. */
    @RateLimit(policy = "stream", slot = true)
    @GetMapping(path = "/stream", produces = TEXT)
    StreamingResponseBody stream() {
        return out -> {
            for (String chunk : new String[] {"one\n", "two\n", "three\n"}) {
                out.write(chunk.getBytes());
                out.flush();
                if (!chunk.equals("three\n")) pause();
            }
        };
    }

    private static void pause() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @RateLimit(policy = "budget", cost = "param('n')")
    @GetMapping(path = "/cost", produces = TEXT)
    String cost(@RequestParam long n) {
        return "cost " + n + "\n";
    }

    @RateLimit(policy = "login", skip = "header('X-Probe') == 'yes'")
    @GetMapping(path = "/skip", produces = TEXT)
    String skip() {
        return "skip\n";
    }

    @RateLimit(policy = "web", onError = DENY)
    @GetMapping(path = "/down", produces = TEXT)
    String down() {
        return "down\n";
    }
}
