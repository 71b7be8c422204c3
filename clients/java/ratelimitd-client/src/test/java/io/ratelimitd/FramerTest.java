package io.ratelimitd;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class FramerTest {
    private static final byte[] ANSWER = HexFormat.of().parseHex("9401cd012cc086a7616c6c6f776564c3a56c696d6974cd03e8a3626967cf001fffffff"
            + "ffffffa36e6567d3fffffffffffffff6a46c6973749301c2a0a362696ec4020001");
    private static final Map<String, Object> RESULT = Map.of("allowed", true, "limit", 1000L, "big", (1L << 53) - 1, "neg", -10L,
            "list", List.of(1L, false, ""));

    private static void assertAnswer(Object message) {
        List<?> response = (List<?>) message;
        assertEquals(300L, response.get(1));
        Map<?, ?> result = (Map<?, ?>) response.get(3);
        RESULT.forEach((name, value) -> assertEquals(value, result.get(name)));
        assertEquals(2, ((byte[]) result.get("bin")).length);
    }

    @Test
    void anAnswerIsFoundHoweverItIsCut() throws IOException {
        for (int cut = 0; cut <= ANSWER.length; cut++) {
            Framer framer = new Framer();
            framer.add(ByteBuffer.wrap(ANSWER, 0, cut));
            if (cut < ANSWER.length) assertFalse(framer.hasNext(), "cut at " + cut);
            framer.add(ByteBuffer.wrap(ANSWER, cut, ANSWER.length - cut));
            assertTrue(framer.hasNext(), "cut at " + cut);
            assertAnswer(framer.take());
            assertFalse(framer.hasNext());
        }
    }

    @Test
    void manyAnswersInPiecesOfEverySizeAllComeOut() throws IOException {
        for (int size = 1; size < 200; size += 7) {
            ByteBuffer all = ByteBuffer.allocate(100 * ANSWER.length);
            while (all.hasRemaining()) all.put(ANSWER);
            all.flip();
            Framer framer = new Framer();
            int n = 0;
            while (all.hasRemaining()) {
                int len = Math.min(size, all.remaining());
                framer.add(all.slice(all.position(), len));
                all.position(all.position() + len);
                while (framer.hasNext()) {
                    assertAnswer(framer.take());
                    n++;
                }
            }
            assertEquals(100, n);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "c1", "9300c0c0", "8401", "dd7fffffff", "940100c0dbffffffff", "940100c0ddffffffff", "940100c0dfffffffff", "940100c0d40100",
        "940100c0cb3ff0000000000000", "940100c091919191919191919191919191919191919191919100", "485454502f312e31"
    })
    void whatCannotBeAnAnswerIsRefusedAtItsHeader(String hex) {
        Framer framer = new Framer();
        framer.add(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));

        assertThrows(IOException.class, framer::hasNext);
    }
}
