package io.ratelimitd;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.msgpack.core.MessageBufferPacker;
import org.msgpack.core.MessagePack;
import org.msgpack.core.MessagePacker;
import org.msgpack.core.MessageUnpacker;

/** Requests to bytes, and the bytes of one answer to values. */
final class Wire {
    private static final MessagePack.PackerConfig PACKER = new MessagePack.PackerConfig().withBufferSize(512);
    private static final byte[] HEAD = {(byte) 0x94, 0, (byte) 0xcf}; /* array of 4, request, a msgid of 8 bytes */

    private Wire() {
    }

    /** The message with msgid 0. IllegalArgumentException for a parameter that the protocol does not have. */
    static byte[] pack(Request request) {
        try (MessageBufferPacker packer = PACKER.newBufferPacker()) {
            packer.writePayload(HEAD);
            packer.writePayload(new byte[Long.BYTES]);
            packer.packString(request.method());
            pack(packer, request.params());
            return packer.toByteArray();
        } catch (IOException e) {
            throw new IllegalStateException("writing to memory failed", e);
        }
    }

    /** The notification that a call was given up. */
    static byte[] packAbandon(long msgid) {
        try (MessageBufferPacker packer = PACKER.newBufferPacker()) {
            packer.packArrayHeader(3).packInt(2).packString("abandon").packArrayHeader(1).packLong(msgid);
            return packer.toByteArray();
        } catch (IOException e) {
            throw new IllegalStateException("writing to memory failed", e);
        }
    }

    static void setMsgid(byte[] message, long msgid) {
        ByteBuffer.wrap(message).putLong(HEAD.length, msgid);
    }

    static long msgid(byte[] message) {
        return ByteBuffer.wrap(message).getLong(HEAD.length);
    }

    /** Of a str or bin; null if it is neither. */
    static String text(Object value) {
        if (value instanceof byte[] bytes) return new String(bytes, StandardCharsets.UTF_8);
        return value instanceof String text ? text : null;
    }

    private static void pack(MessagePacker packer, Object value) throws IOException {
        if (value == null) packer.packNil();
        else if (value instanceof String text) packer.packString(text);
        else if (value instanceof byte[] bytes) packer.packBinaryHeader(bytes.length).writePayload(bytes);
        else if (value instanceof Boolean flag) packer.packBoolean(flag);
        else if (value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte)
            packer.packLong(((Number) value).longValue());
        else if (value instanceof List<?> list) {
            packer.packArrayHeader(list.size());
            for (Object item : list) pack(packer, item);
        } else if (value instanceof Map<?, ?> map) {
            packer.packMapHeader(map.size());
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                pack(packer, entry.getKey());
                pack(packer, entry.getValue());
            }
        } else throw new IllegalArgumentException("the protocol has no " + value.getClass().getName());
    }

    /** Any exception means that the bytes are not valid. The Framer has bounded their nesting and number. */
    static Object unpack(byte[] bytes, int offset, int len) throws IOException {
        try (MessageUnpacker unpacker = MessagePack.newDefaultUnpacker(bytes, offset, len)) {
            return unpack(unpacker);
        }
    }

    private static Object unpack(MessageUnpacker unpacker) throws IOException {
        switch (unpacker.getNextFormat().getValueType()) {
            case NIL:
                unpacker.unpackNil();
                return null;
            case BOOLEAN:
                return unpacker.unpackBoolean();
            case INTEGER:
                return unpacker.unpackLong();
            case STRING:
                return unpacker.unpackString();
            case BINARY:
                return unpacker.readPayload(unpacker.unpackBinaryHeader());
            case ARRAY:
                int items = unpacker.unpackArrayHeader();
                List<Object> list = new ArrayList<>(Math.min(items, 16));
                for (int i = 0; i < items; i++) list.add(unpack(unpacker));
                return list;
            case MAP:
                int entries = unpacker.unpackMapHeader();
                Map<Object, Object> map = new LinkedHashMap<>();
                for (int i = 0; i < entries; i++) {
                    Object name = unpack(unpacker);
                    map.put(name instanceof byte[] ? text(name) : name, unpack(unpacker));
                }
                return map;
            default:
                throw new IOException("a type that the protocol does not have");
        }
    }
}
