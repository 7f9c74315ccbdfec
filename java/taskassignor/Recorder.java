package taskassignor;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicLong;

/**
 * States and decisions as files of snapshots: states.jsonl and decisions.jsonl, line by line, and older ones as
 * states.1.jsonl (the latest of them) and so on. All together never take more than the given bytes.
 */
final class Recorder {
    private static final int OLDER = 3;
    private static final AtomicLong COUNT = new AtomicLong();

    private Recorder() { }

    static synchronized void write(final Path dir, final long mostBytes, final String application, final State state, final Decision decision)
        throws IOException {
        Files.createDirectories(dir);
        final String id = application + "-" + state.nowMs + "-" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet();
        final byte[] line = SnapshotText.state(state, id).getBytes(StandardCharsets.UTF_8);
        final byte[] answer = SnapshotText.decision(state, decision, id).getBytes(StandardCharsets.UTF_8);
        final long most = mostBytes / (OLDER + 1);
        if (line.length + answer.length > most) {
            throw new IOException("a state of " + line.length + " bytes does not fit: " + Settings.PREFIX + "record.max.bytes is " + mostBytes);
        }
        // Other instances of the application may record into the same directory.
        try (FileChannel lock = FileChannel.open(dir.resolve(".lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
             FileLock held = lock.lock()) {
            if (size(dir, "states.jsonl") + size(dir, "decisions.jsonl") + line.length + answer.length > most) {
                rotate(dir);
            }
            final long before = size(dir, "states.jsonl");
            append(dir.resolve("states.jsonl"), line);
            try {
                append(dir.resolve("decisions.jsonl"), answer);
            } catch (final IOException failed) {
                // The files are read side by side: no state without its decision.
                try (FileChannel file = FileChannel.open(dir.resolve("states.jsonl"), StandardOpenOption.WRITE)) {
                    file.truncate(before);
                }
                throw failed;
            }
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

    private static long size(final Path dir, final String name) throws IOException {
        final Path file = dir.resolve(name);
        return Files.exists(file) ? Files.size(file) : 0;
    }

    private static void rotate(final Path dir) throws IOException {
        for (final String name : new String[] {"states", "decisions"}) {
            for (int age = OLDER; age > 0; age--) {
                final Path from = dir.resolve(name + (age == 1 ? "" : "." + (age - 1)) + ".jsonl");
                if (Files.exists(from)) {
                    Files.move(from, dir.resolve(name + "." + age + ".jsonl"), StandardCopyOption.REPLACE_EXISTING);
                }
            }
        }
    }
}
