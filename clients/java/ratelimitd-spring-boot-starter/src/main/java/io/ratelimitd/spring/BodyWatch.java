package io.ratelimitd.spring;

import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.function.IntConsumer;

/**
 * Reports when an answer begins to go out: then its status is certain, and the client has not seen the end of it. What
 * depends on the status is settled there, so that the client's next request already finds it settled.
 */
final class BodyWatch extends HttpServletResponseWrapper {
    private IntConsumer beforeBody; /* with the status; null once it has run */
    private ServletOutputStream stream;
    private PrintWriter writer;

    BodyWatch(HttpServletResponse response) {
        super(response);
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
