package taskassignor;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The other end: a child process or a connection to a server, which lives from one rebalance to the next. Kafka makes a
 * new assignor per rebalance, so peers are kept here, by what they were made of.
 */
final class Peer {
    private static final int LONGEST_MESSAGE = 1 << 30;
    private static final long LONGEST_START_MS = 60_000;
    /** How long a process may take to be gone once its pipes are. */
    private static final long END_MS = 200;
    private static final Map<List<Object>, Peer> PEERS = new ConcurrentHashMap<>();
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(task -> daemon(task, "task-assignor-bridge"));

    static {
        // A child also ends by itself when its standard input does: that covers a JVM that is killed.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> PEERS.values().forEach(Peer::close), "task-assignor-bridge-end"));
    }

    private final Settings settings;
    private final ReentrantLock turn = new ReentrantLock();
    private volatile Connection connection;
    /** Opens the connection and says hello; then the settings that the assignor declares. */
    private Future<List<String>> starting;
    private long startedNanos;

    private Peer(final Settings settings) {
        this.settings = settings;
    }

    static Peer of(final Settings settings) {
        final List<Object> made = List.of(settings.application, settings.assignor, settings.address, settings.command);
        return PEERS.computeIfAbsent(made, any -> new Peer(settings));
    }

    /** Not there yet, but soon. */
    static final class StillStartingException extends TimeoutException {
        private static final long serialVersionUID = 1L;

        StillStartingException(final String message) {
            super(message);
        }
    }

    interface Request {
        /** The message, given the names of the settings that the assignor declares. */
        byte[] message(List<String> keys);
    }

    /**
     * Sends a request and waits for its answer; whatever goes wrong, this takes no longer than the timeout.
     *
     * @throws Exception the peer died, sent nonsense, or did not answer in time; it is started anew the next time. One
     *     that is still starting goes on with it, so that it is there the next time.
     */
    byte[] ask(final Request request, final long timeoutMs) throws Exception {
        final long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        if (!turn.tryLock(timeoutMs, TimeUnit.MILLISECONDS)) {
            throw new TimeoutException("another rebalance was waiting for it for " + timeoutMs + " ms");
        }
        try {
            final boolean reused = starting != null && starting.isDone();
            // Whether a server is, only the next message tells.
            final boolean wasThere = reused && connection.process != null && connection.process.isAlive();
            try {
                return exchange(request, timeoutMs, end);
            } catch (final IOException broken) {
                if (!reused) {
                    throw broken;
                }
                // It may have been restarted since the last rebalance.
                try {
                    return exchange(request, timeoutMs, end);
                } catch (final StillStartingException late) {
                    // What ends a process when it is asked is not over as soon as the next one has started.
                    throw wasThere ? broken : late;
                }
            }
        } finally {
            turn.unlock();
        }
    }

    private byte[] exchange(final Request request, final long timeoutMs, final long end) throws Exception {
        final boolean isFresh = starting == null || !starting.isDone();
        if (starting == null) {
            startedNanos = System.nanoTime();
            final Connection made = new Connection();
            connection = made;
            starting = THREADS.submit(() -> {
                made.open(settings);
                return Wire.welcome(made.call(Wire.hello(settings.assignor)));
            });
        }
        final List<String> keys;
        try {
            keys = await(starting, end);
        } catch (final TimeoutException late) {
            if (System.nanoTime() - startedNanos > TimeUnit.MILLISECONDS.toNanos(LONGEST_START_MS)) {
                close();
            }
            throw new StillStartingException("Python is still starting after " + timeoutMs + " ms");
        } catch (final Exception failed) {
            close();
            throw failed instanceof IOException && settings.address.isEmpty() ? new IOException(failed.getMessage()
                + ". Maybe the setting " + Settings.PREFIX + "command (" + settings.command.get(0)
                + ") is wrong; \"task-assignor bridge check\" says more", failed) : failed;
        }
        if (isFresh && end - System.nanoTime() < TimeUnit.MILLISECONDS.toNanos(timeoutMs) / 2) {
            // What is left may be too little for any question, and whoever is late is killed: it would never get far.
            throw new StillStartingException("Python has only just started");
        }
        // To make a message may take longer than there is time: it must not be sent to the next connection then.
        final Connection now = connection;
        final Future<byte[]> answer = THREADS.submit(() -> now.call(request.message(keys)));
        try {
            return await(answer, end);
        } catch (final TimeoutException late) {
            close();
            throw new TimeoutException("no answer of " + settings.assignor + " within " + timeoutMs + " ms");
        } catch (final Exception failed) {
            close();
            throw failed;
        } finally {
            answer.cancel(true);
        }
    }

    private <T> T await(final Future<T> future, final long end) throws Exception {
        try {
            return future.get(Math.max(1, end - System.nanoTime()), TimeUnit.NANOSECONDS);
        } catch (final ExecutionException failed) {
            final Process child = connection.process;
            if (failed.getCause() instanceof IOException && child != null && child.waitFor(END_MS, TimeUnit.MILLISECONDS)) {
                // That says more than what became of its pipes.
                throw new IOException("Python ended without an answer, with exit code " + child.exitValue(), failed);
            }
            throw failed.getCause() instanceof Exception ? (Exception) failed.getCause() : failed;
        }
    }

    private void close() {
        final Connection now = connection;
        if (now != null) {
            now.close();
        }
        if (starting != null) {
            starting.cancel(true);
        }
        starting = null;
    }

    private static SocketAddress address(final String text) throws Exception {
        if (text.startsWith("unix:/")) {
            try {
                return (SocketAddress) Class.forName("java.net.UnixDomainSocketAddress").getMethod("of", String.class)
                    .invoke(null, text.substring("unix:".length()));
            } catch (final ClassNotFoundException old) {
                throw new IOException("Unix sockets need Java 16 or newer; use a loopback address such as 127.0.0.1:7777");
            }
        }
        final int colon = text.lastIndexOf(':');
        if (colon < 0 || text.startsWith("unix:")) {
            throw new IOException("the address " + text + " must be host:port or unix:/path");
        }
        final InetAddress host = InetAddress.getByName(text.substring(0, colon).replace("[", "").replace("]", ""));
        if (!host.isLoopbackAddress()) {
            throw new IOException("the address " + text + " must be one of this host (127.0.0.1): the bridge has no passwords");
        }
        return new InetSocketAddress(host, Integer.parseInt(text.substring(colon + 1)));
    }

    static Thread daemon(final Runnable task, final String name) {
        final Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    /**
     * A child process or a channel, used once. Starting one cannot be interrupted: where it is given up meanwhile, it ends
     * what it has opened when it gets to it, and has no part in the connection that is opened next.
     */
    static final class Connection {
        volatile Process process;
        private volatile SocketChannel channel;
        private volatile boolean isClosed;
        private DataInputStream in;
        private OutputStream out;

        void open(final Settings settings) throws Exception {
            if (settings.address.isEmpty()) {
                final Process child = new ProcessBuilder(settings.command).start();
                process = child;
                child.onExit().thenAccept(Connection::endGroup);
                THREADS.submit(() -> new Printed(child.getErrorStream()).logAll());
                in = new DataInputStream(new BufferedInputStream(child.getInputStream(), 1 << 16));
                out = child.getOutputStream();
            } else {
                final SocketAddress address = address(settings.address);
                try {
                    channel = SocketChannel.open(address);
                } catch (final IOException refused) {
                    throw new IOException("nobody listens at " + settings.address + ": " + refused.getMessage(), refused);
                }
                in = new DataInputStream(new BufferedInputStream(Channels.newInputStream(channel), 1 << 16));
                out = Channels.newOutputStream(channel);
            }
            if (isClosed) {
                close();
                throw new IOException("it was given up while it started");
            }
        }

        /** What an assignor has started is in the process group of Python, and nobody's descendant once that was killed. */
        private static void endGroup(final Process ended) {
            try {
                // Where there is none left of the group, its number may be another's.
                if (ProcessHandle.of(ended.pid()).isEmpty()) {
                    new ProcessBuilder("sh", "-c", "kill -9 -" + ended.pid() + " 2>&1").start();
                }
            } catch (final IOException noShell) {
                // It goes on.
            }
        }

        byte[] call(final byte[] message) throws IOException, Wire.WireException {
            try {
                // One write: half a message would wait for the other end to confirm it.
                out.write(ByteBuffer.allocate(4 + message.length).putInt(message.length).put(message).array());
                out.flush();
                final int length = in.readInt();
                // A line that somebody prints may look like a length, of which nothing more would come.
                if (length < 1 || length > LONGEST_MESSAGE || !Wire.isAnswer(nextByte())) {
                    throw new Wire.WireException("what came is not a message of the bridge. Maybe what starts Python prints something: "
                        + "its standard output is for answers only");
                }
                final byte[] answer = in.readNBytes(length);
                if (answer.length < length) {
                    throw new IOException("the answer broke off");
                }
                return answer;
            } catch (final EOFException ended) {
                throw new IOException("Python ended without an answer");
            }
        }

        private int nextByte() throws IOException {
            in.mark(1);
            final int next = in.readUnsignedByte();
            in.reset();
            return next;
        }

        void close() {
            isClosed = true;
            final Process child = process;
            if (child != null) {
                // A wrapper script may stand between us and Python.
                child.descendants().forEach(ProcessHandle::destroyForcibly);
                child.destroyForcibly();
            }
            final SocketChannel opened = channel;
            if (opened != null) {
                try {
                    opened.close();
                } catch (final IOException ignored) {
                    // It is of no use any more.
                }
            }
        }
    }
}
