package io.ratelimitd.spring;

import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.IntConsumer;
import org.springframework.web.util.WebUtils;

/**
 * The answer to a request that has limits.
 *
 * <p>It reports when it begins to go out: then its status is certain, and the client has not seen the end of it. What
 * depends on the status is settled there, so that the client's next request already finds it settled.
 *
 * <p>It keeps the limits' fields: what the application sets under the same name is added to lists, and else dropped.
 */
final class LimitedResponse extends HttpServletResponseWrapper {
    private final Set<String> kept = new TreeSet<>(String.CASE_INSENSITIVE_ORDER); /* names of the limits' fields */
    private IntConsumer beforeBody; /* with the status; null once it has run */
    private ServletOutputStream stream;
    private PrintWriter writer;

    LimitedResponse(HttpServletResponse response) {
        super(response);
    }

    /**
     * Sets the fields of a limit.
     *
     * @param reported what earlier places of the request have set, of lists
     */
    static void report(HttpServletResponse response, Map<String, String> fields, Map<String, String> reported) {
        LimitedResponse keeps = WebUtils.getNativeResponse(response, LimitedResponse.class);
        fields.forEach((name, value) -> {
            if (name.equals("Content-Type")) return;
            if (keeps != null) keeps.kept.remove(name);
            String before = Answers.isList(name) ? response.getHeader(name) : null;
            response.setHeader(name, Answers.joined(name, before, value, reported));
            if (keeps != null) keeps.kept.add(name);
        });
    }

    @Override
    public void setHeader(String name, String value) {
        if (!kept.contains(name)) super.setHeader(name, value);
        else if (Answers.isList(name) && value != null) super.addHeader(name, value);
    }

    @Override
    public void addHeader(String name, String value) {
        if (!kept.contains(name) || Answers.isList(name)) super.addHeader(name, value);
    }

    @Override
    public void setIntHeader(String name, int value) {
        setHeader(name, Integer.toString(value));
    }

    @Override
    public void addIntHeader(String name, int value) {
        addHeader(name, Integer.toString(value));
    }

    @Override
    public void setDateHeader(String name, long date) {
        if (!kept.contains(name)) super.setDateHeader(name, date);
    }

    @Override
    public void addDateHeader(String name, long date) {
        if (!kept.contains(name)) super.addDateHeader(name, date);
    }

    void beforeBody(IntConsumer settle) {
        beforeBody = beforeBody == null ? settle : beforeBody.andThen(settle);
    }

    private void begin(int status) {
        IntConsumer settle = beforeBody;
        beforeBody = null;
        if (settle != null) settle.accept(status);
    }

    @Override
    public void sendError(int status) throws IOException {
        begin(status);
        super.sendError(status);
    }

    @Override
    public void sendError(int status, String message) throws IOException {
        begin(status);
        super.sendError(status, message);
    }

    @Override
    public void sendRedirect(String location) throws IOException {
        begin(SC_FOUND);
        super.sendRedirect(location);
    }

    @Override
    public void flushBuffer() throws IOException {
        begin(getStatus());
        super.flushBuffer();
    }

    @Override
    public PrintWriter getWriter() throws IOException {
        if (writer == null) {
            writer = new PrintWriter(super.getWriter()) {
                @Override
                public void write(int character) {
                    begin(getStatus());
                    super.write(character);
                }

                @Override
                public void write(char[] text, int offset, int len) {
                    begin(getStatus());
                    super.write(text, offset, len);
                }

                @Override
                public void write(String text, int offset, int len) {
                    begin(getStatus());
                    super.write(text, offset, len);
                }

                @Override
                public void flush() {
                    begin(getStatus());
                    super.flush();
                }
            };
        }
        return writer;
    }

    @Override
    public ServletOutputStream getOutputStream() throws IOException {
        if (stream == null) stream = new Stream(super.getOutputStream());
        return stream;
    }

    private final class Stream extends ServletOutputStream {
        private final ServletOutputStream out;

        Stream(ServletOutputStream out) {
            this.out = out;
        }

        @Override
        public void write(int value) throws IOException {
            begin(getStatus());
            out.write(value);
        }

        @Override
        public void write(byte[] bytes, int offset, int len) throws IOException {
            begin(getStatus());
            out.write(bytes, offset, len);
        }

        @Override
        public void flush() throws IOException {
            begin(getStatus());
            out.flush();
        }

        @Override
        public void close() throws IOException {
            begin(getStatus());
            out.close();
        }

        @Override
        public boolean isReady() {
            return out.isReady();
        }

        @Override
        public void setWriteListener(WriteListener listener) {
            out.setWriteListener(listener);
        }
    }
}
