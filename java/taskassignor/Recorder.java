package taskassignor;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;

/**
 * States and decisions as files of snapshots: states.jsonl and decisions.jsonl, line by line, and older ones as
 * states.1.jsonl (the latest of them) and so on. All together never take more than the given bytes.
 */
final class Recorder {
    private static final int OLDER = 3;
    private static final String[] NAMES = {"states", "decisions"};
    /** Bytes that this JVM has left: where there are others, another instance has written, and may have been killed at it. */
    private static final Map<Path, Long> LEFT = new HashMap<>();
    private static final AtomicLong COUNT = new AtomicLong();

    private Recorder() { }

    static synchronized void write(final Path dir, final long mostBytes, final String application, final State state, final Decision decision)
        throws IOException {
        Files.createDirectories(dir);
        final String id = application + "-" + state.nowMs + "-" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet();
        final byte[] line = SnapshotText.state(state, id).getBytes(StandardCharsets.UTF_8);
        final byte[] answer = SnapshotText.decision(state, decision, id).getBytes(StandardCharsets.UTF_8);
        final long more = line.length + answer.length;
        if (more > mostBytes) {
            throw new IOException("a state of " + line.length + " bytes does not fit: " + Settings.PREFIX + "record.max.bytes is " + mostBytes);
        }
        // Other instances of the application may record into the same directory.
        try (FileChannel lock = FileChannel.open(dir.resolve(".lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
             FileLock held = lock.lock()) {
            if (!Objects.equals(LEFT.get(dir), size(dir, 0))) {
                repair(dir);
            }
            if (size(dir, 0) > 0 && size(dir, 0) + more > mostBytes / (OLDER + 1)) {
                rotate(dir);
            }
            deleteOldest(dir, mostBytes - more);
            final long before = size(file(dir, "states", 0));
            append(file(dir, "states", 0), line);
            try {
                append(file(dir, "decisions", 0), answer);
            } catch (final IOException failed) {
                // The files are read side by side: no state without its decision.
                truncate(file(dir, "states", 0), before);
                throw failed;
            }
            LEFT.put(dir, size(dir, 0));
        }
    }

    /** Deletes what an instance that was killed has left: half a line, or a state without its decision. */
    private static void repair(final Path dir) throws IOException {
        final List<List<Long>> ends = new ArrayList<>();
        for (final String name : NAMES) {
            ends.add(lineEnds(file(dir, name, 0)));
        }
        final int whole = Math.min(ends.get(0).size(), ends.get(1).size());
        for (int name = 0; name < NAMES.length; name++) {
            if (Files.exists(file(dir, NAMES[name], 0))) {
                truncate(file(dir, NAMES[name], 0), whole == 0 ? 0 : ends.get(name).get(whole - 1));
            }
        }
    }

    private static List<Long> lineEnds(final Path file) throws IOException {
        final List<Long> ends = new ArrayList<>();
        if (Files.exists(file)) {
            try (InputStream in = new BufferedInputStream(Files.newInputStream(file), 1 << 16)) {
                long at = 0;
                for (int one = in.read(); one >= 0; one = in.read()) {
                    at++;
                    if (one == '\n') {
                        ends.add(at);
                    }
                }
            }
        }
        return ends;
    }

    private static void truncate(final Path file, final long length) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            channel.truncate(length);
        }
    }

    private static void append(final Path file, final byte[] line) throws IOException {
        try (FileChannel out = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            final long before = out.size();
            out.position(before);
            final ByteBuffer rest = ByteBuffer.wrap(line);
            try {
                while (rest.hasRemaining()) {
                    out.write(rest);
                }
            } catch (final IOException failed) {
                out.truncate(before);
                throw failed;
            }
        }
    }

    private static Path file(final Path dir, final String name, final int age) {
        return dir.resolve(name + (age == 0 ? "" : "." + age) + ".jsonl");
    }

    private static long size(final Path file) throws IOException {
        return Files.exists(file) ? Files.size(file) : 0;
    }

    private static long size(final Path dir, final int age) throws IOException {
        return size(file(dir, "states", age)) + size(file(dir, "decisions", age));
    }

    private static void rotate(final Path dir) throws IOException {
        for (final String name : NAMES) {
            for (int age = OLDER; age > 0; age--) {
                final Path from = file(dir, name, age - 1);
                if (Files.exists(from)) {
                    Files.move(from, file(dir, name, age), StandardCopyOption.REPLACE_EXISTING);
                }
            }
        }
    }

    /** Until the rest takes no more than so many bytes. */
    private static void deleteOldest(final Path dir, final long mostBytes) throws IOException {
        long all = 0;
        for (int age = 0; age <= OLDER; age++) {
            all += size(dir, age);
            if (all > mostBytes) {
                for (final String name : NAMES) {
                    Files.deleteIfExists(file(dir, name, age));
                }
            }
        }
    }
}
