package taskassignor;

import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupAssignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.streams.errors.TaskAssignmentException;
import org.apache.kafka.streams.processor.assignment.ApplicationState;
import org.apache.kafka.streams.processor.assignment.TaskAssignor;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the three assignors of the bridge share: whatever goes wrong, the group gets an assignment and no exception. In
 * Kafka Streams an exception of an assignor ends stream threads, a TaskAssignmentException those of all members.
 */
abstract class BridgeAssignor implements TaskAssignor {
    static final Logger log = LoggerFactory.getLogger("taskassignor");
    /** What a rebalance need not wait for: records, and the question to Python in shadow mode. */
    private static final ThreadPoolExecutor LATER = new ThreadPoolExecutor(1, 1, 10, TimeUnit.SECONDS, new ArrayBlockingQueue<>(16),
        task -> Peer.daemon(task, "task-assignor-bridge-later"));
    private static final int LONGEST_BACK_OFF = 16;
    private static final long SOON_MS = 5_000;

    Settings settings;
    Metrics metrics;
    /** Who decided, if not Kafka's default assignor or Python. */
    private TaskAssignor given;

    static {
        LATER.allowCoreThreadTimeOut(true);
    }

    @Override public void configure(final Map<String, ?> configs) {
        settings = new Settings(configs);
        metrics = Metrics.of(settings.application);
    }

    /** The assignment for a state; may fail in any way. */
    abstract Decision decide(ApplicationState application, State state) throws Exception;

    /** What Java decides without the bridge. */
    Decision ofJava(final ApplicationState application, final State state) throws Exception {
        if (settings.javaClass.isEmpty()) {
            return JavaDecision.ofDefault(state);
        }
        final TaskAssignor assignor = JavaDecision.given(settings);
        final Decision decision = Decision.of(state, assignor.assign(application));
        given = assignor;
        return decision;
    }

    /** Where states and decisions are recorded; null: nowhere. */
    Path recordDir() {
        return settings.recordDir;
    }

    @Override public TaskAssignment assign(final ApplicationState application) {
        metrics.rebalance();
        final State state = new State(application);
        Decision decision;
        try {
            decision = decide(application, state);
        } catch (final Throwable failed) {
            if (failed instanceof VirtualMachineError && !(failed instanceof StackOverflowError)) {
                throw (VirtualMachineError) failed;
            }
            if (failed instanceof InterruptedException) {
                // Whoever wants this thread to end has not been heard yet.
                Thread.currentThread().interrupt();
            }
            decision = keep(state, failed);
        }
        record(state, decision);
        return decision.toKafka(state);
    }

    private Decision keep(final State state, final Throwable failed) {
        final String what = what(failed);
        final boolean isStart = failed instanceof Peer.StillStartingException;
        final int inARow = metrics.failure(what, isStart);
        if (settings.raiseOnFailure) {
            throw new TaskAssignmentException("The bridge has no assignment: " + what, failed);
        }
        final long waitMs = isStart ? Math.min(settings.retryMs, SOON_MS) : settings.retryMs * Math.min(LONGEST_BACK_OFF, 1L << Math.min(inARow - 1, 10));
        final Keep kept = new Keep(state, state.nowMs + waitMs);
        log.warn("No assignment ({}). {} tasks on {} clients stay where they are, {} without owner go to a standby or to the least "
            + "loaded client; the group asks again in {} s.", what, state.tasks.length, state.clients.length, kept.orphans, waitMs / 1000);
        log.debug("Why there is no assignment", failed);
        return kept.decision;
    }

    static String what(final Throwable failed) {
        return failed instanceof Wire.WireException || failed instanceof java.util.concurrent.TimeoutException
            ? failed.getMessage() : failed.getClass().getSimpleName() + ": " + failed.getMessage();
    }

    /** Ask Python, and check what it answers. */
    Wire.Answer ask(final State state, final Decision java, final long timeoutMs) throws Exception {
        final long start = System.nanoTime();
        metrics.asking();
        final byte[] message = Peer.of(settings).ask(keys -> {
            final Map<String, String> own = new TreeMap<>();
            keys.stream().filter(key -> settings.all.get(key) != null).forEach(key -> own.put(key, Settings.text(settings.all.get(key), "")));
            return Wire.assign(state, own, timeoutMs, java);
        }, timeoutMs);
        final Wire.Answer answer = Wire.answer(message, state.clients.length);
        final String problem = answer.decision.problem(state);
        if (problem != null) {
            throw new Wire.WireException("the answer of " + settings.assignor + " is not valid: " + problem);
        }
        final double ms = (System.nanoTime() - start) / 1e6;
        metrics.answer(ms);
        log.info("{} placed {} tasks and {} standbys on {} clients in {} ms{}.", settings.assignor, state.tasks.length,
            answer.decision.standbys(), state.clients.length, Math.round(ms), java == null ? "" : " (in shadow: it does not count)");
        return answer;
    }

    private void record(final State state, final Decision decision) {
        final Path dir = recordDir();
        if (dir != null) {
            final boolean isTaken = later("record the state", () -> {
                try {
                    Recorder.write(dir, settings.recordMaxBytes, settings.application, state, decision);
                    metrics.recording(true);
                } catch (final Exception failed) {
                    metrics.recording(false);
                    log.warn("A state could not be recorded in {}: {}", dir, failed.toString());
                }
            });
            if (!isTaken) {
                metrics.recording(false);
            }
        }
    }

    /** Run something that the rebalance does not wait for; where too much waits already it is left out, and this is false. */
    boolean later(final String what, final Runnable task) {
        try {
            LATER.execute(task);
            return true;
        } catch (final RejectedExecutionException full) {
            log.warn("Too busy to {}.", what);
            return false;
        }
    }

    static boolean differ(final Decision one, final Decision other) {
        return !Arrays.deepEquals(sorted(one.active), sorted(other.active)) || !Arrays.deepEquals(sorted(one.standby), sorted(other.standby));
    }

    private static int[][] sorted(final int[][] tasks) {
        return Arrays.stream(tasks).map(one -> Arrays.stream(one).sorted().toArray()).toArray(int[][]::new);
    }

    @Override public void onAssignmentComputed(final GroupAssignment assignment, final GroupSubscription subscription, final AssignmentError error) {
        if (error != AssignmentError.NONE) {
            log.error("Kafka refuses the assignment: {}", error);
        }
        if (given != null) {
            try {
                given.onAssignmentComputed(assignment, subscription, error);
            } catch (final RuntimeException failed) {
                log.warn("{} failed when it was told of its assignment: {}", settings.javaClass, failed.toString());
            }
        }
    }
}
