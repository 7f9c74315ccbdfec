package taskassignor;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;

/** Bytes that grow: big-endian numbers, texts and lists with their length before them. */
final class Buffer {
    private byte[] bytes = new byte[1 << 16];
    private int length;

    Buffer putByte(final int value) {
        room(1);
        bytes[length++] = (byte) value;
        return this;
    }

    Buffer putInt(final int value) {
        room(4);
        bytes[length++] = (byte) (value >>> 24);
        bytes[length++] = (byte) (value >>> 16);
        bytes[length++] = (byte) (value >>> 8);
        bytes[length++] = (byte) value;
        return this;
    }

    Buffer putLong(final long value) {
        return putInt((int) (value >>> 32)).putInt((int) value);
    }

    Buffer putInts(final int[] values) {
        for (final int value : values) {
            putInt(value);
        }
        return this;
    }

    Buffer putLongs(final long[] values) {
        for (final long value : values) {
            putLong(value);
        }
        return this;
    }

    /** A text in UTF-8; null has the length -1. */
    Buffer putText(final String text) {
        if (text == null) {
            return putInt(-1);
        }
        final byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
        return putInt(encoded.length).putRaw(encoded, encoded.length);
    }

    /** The bytes of another buffer. */
    Buffer putRaw(final Buffer other) {
        return putRaw(other.bytes, other.length);
    }

    private Buffer putRaw(final byte[] more, final int count) {
        room(count);
        System.arraycopy(more, 0, bytes, length, count);
        length += count;
        return this;
    }

    Buffer putTexts(final Collection<?> texts) {
        putInt(texts.size());
        texts.forEach(text -> putText(text.toString()));
        return this;
    }

    byte[] toBytes() {
        return Arrays.copyOf(bytes, length);
    }

    private void room(final int more) {
        if (bytes.length - length < more) {
            bytes = Arrays.copyOf(bytes, Math.max(bytes.length * 2, Math.addExact(length, more)));
        }
    }
}
