package starter;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.ratelimitd.DeniedException;
import io.ratelimitd.testing.TestDaemon;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.io.DefaultResourceLoader;

/** Every snippet of the README compiles and does what the text around it describes. */
class ReadmeTest {
    private static final Path ROOT = Path.of(System.getProperty("basedir", ".")).resolve("../../..").normalize();
    private static final Pattern SNIPPET = Pattern.compile("```(\\w+)\\n(.*?)```", Pattern.DOTALL);
    private static final Pattern CLASS = Pattern.compile("public class (\\w+)");

    /** The snippets' timeouts are for machines that have time. */
    private static final String PATIENT =
            "RateLimitClient.builder().timeout(Duration.ofSeconds(30)).build()";

    @TempDir
    static Path folder;
    private static final List<String> YAML = new ArrayList<>();
    private static final List<String> JAVA = new ArrayList<>();
    private static String readme;
    private static URLClassLoader classes;

    @BeforeAll
    static void compile() throws IOException {
        readme = Files.readString(ROOT.resolve("README.md"));
        List<String> files = new ArrayList<>();
        for (Matcher snippet = SNIPPET.matcher(readme); snippet.find();) {
            if (snippet.group(1).equals("yaml")) YAML.add(snippet.group(2));
            if (!snippet.group(1).equals("java")) continue;
            Matcher name = CLASS.matcher(snippet.group(2));
            assertTrue(name.find(), snippet.group(2));
            JAVA.add(name.group(1));
            String source = snippet.group(2).replace("RateLimitClient.open()", PATIENT).replace("ofMillis(50)", "ofSeconds(30)");
            files.add(Files.writeString(folder.resolve(name.group(1) + ".java"), "package readme;\n" + source).toString());
        }
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        List<String> arguments = new ArrayList<>(List.of("-d", folder.toString(), "-parameters", "-classpath",
                System.getProperty("java.class.path")));
        arguments.addAll(files);
        assertEquals(0, compiler.run(null, null, null, arguments.toArray(String[]::new)));
        classes = new URLClassLoader(new URL[] {folder.toUri().toURL()}, ReadmeTest.class.getClassLoader());
    }

    @Configuration
    @EnableAutoConfiguration
    static class Base {
    }

    @Test
    void theServiceIsLimitedAsTheTextSays() throws Exception {
        Path settings = Files.writeString(folder.resolve("settings.yaml"), YAML.get(1));
        try (TestDaemon daemon = new TestDaemon(YAML.get(0)).start()) {
            SpringApplication app = new SpringApplication(Base.class, classes.loadClass("readme.Reports"), classes.loadClass("readme.Mailer"));
            app.setResourceLoader(new DefaultResourceLoader(classes));
            app.setDefaultProperties(Map.of("PORT", 0, "ratelimitd.socket", daemon.socket().toString(),
                    "spring.config.import", settings.toUri().toString()));
            try (ConfigurableApplicationContext running = app.run("--ratelimitd.timeout=10s")) {
                Http http = new Http(running);
                assertEquals("ok", http.get("/health").body());
                for (int i = 0; i < 10; i++) assertEquals(200, http.get("/export").statusCode());
                assertEquals(429, http.get("/export").statusCode());
                for (int i = 0; i < 5; i++) assertEquals(401, http.post("/login", "user=a&password=b").statusCode());
                assertEquals(429, http.post("/login", "user=a&password=right").statusCode());
                assertEquals(200, http.post("/login", "user=b&password=right").statusCode());
                assertEquals(401, http.post("/login", "").statusCode());
                assertEquals(401, http.post("/login", "user=&user=|%25&password=").statusCode());
                assertEquals("found, 9 left", http.get("/search").body());
                assertEquals("found, 98 left", http.get("/search", "X-Plan", "gold").body()); // one counter: the limit has moved
                assertEquals("\"report\";r=1", http.get("/report").headers().firstValue("RateLimit").orElse(null));
                assertEquals("\"web\";r=999;t=3600",
                        http.get("/api/x").headers().firstValue("RateLimit").orElse("").replaceAll("t=\\d+", "t=3600"));
                Object mailer = running.getBean(classes.loadClass("readme.Mailer"));
                Method send = classes.loadClass("readme.Mailer").getMethod("send", String.class, String.class);
                for (int i = 0; i < 10; i++) send.invoke(mailer, "alice", "text");
                assertTrue(assertThrows(InvocationTargetException.class,
                        () -> send.invoke(mailer, "alice", "text")).getCause() instanceof DeniedException);
            }
        }
    }

    @Test
    void theProgramRuns() throws Exception {
        try (TestDaemon daemon = new TestDaemon(YAML.get(0)).start()) {
            ProcessBuilder program = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                    "-XX:TieredStopAtLevel=1", "-cp", folder + ":" + System.getProperty("java.class.path"), "readme.Try");
            program.environment().put("RATELIMIT_SOCKET", daemon.socket().toString());
            Process process = program.redirectErrorStream(true).start();
            String output = new String(process.getInputStream().readAllBytes());
            assertEquals(0, process.waitFor(), output);
            assertTrue(output.startsWith("3 left\nboth\none of the two slots\nallowed "), output);
        }
    }

    @Test
    void theTestsPass() throws Exception {
        for (String name : JAVA) {
            if (!name.endsWith("Test")) continue;
            Class<?> test = classes.loadClass("readme." + name);
            TestDaemon daemon = null;
            for (Field field : test.getDeclaredFields()) {
                field.setAccessible(true);
                daemon = ((TestDaemon) field.get(null)).start();
            }
            Object instance = test.getConstructor().newInstance();
            for (Method method : test.getDeclaredMethods())
                if (method.isAnnotationPresent(Test.class)) method.invoke(instance);
            if (daemon != null) daemon.close();
        }
    }

    @Test
    void theArtifactsExist() throws IOException {
        String pom = Files.readString(ROOT.resolve("pom.xml"));
        assertTrue(pom.contains("<version>" + readme.replaceAll("(?s).*<version>(.*?)</version>.*", "$1") + "</version>"));
        for (String module : readme.replaceAll("(?s).*-pl (\\S+) install.*", "$1").split(","))
            assertTrue(module.equals(".") || pom.contains("<module>" + module + "</module>"), module);
    }
}
