package taskassignor;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.assignment.AssignmentConfigs;
import org.apache.kafka.streams.processor.assignment.KafkaStreamsState;
import org.apache.kafka.streams.processor.assignment.TaskTopicPartition;
import org.apache.kafka.streams.state.HostInfo;

/**
 * The messages: each is an int32 length, then a byte that says what it is, then its fields. States are columns, so that
 * Python reads them without touching single tasks. The layout is that of task_assignor/bridge/wire.py.
 */
final class Wire {
    static final int PROTOCOL = 1;
    static final int HELLO = 1;
    static final int WELCOME = 2;
    static final int ASSIGN = 3;
    static final int ANSWER = 4;
    static final int ERROR = 5;

    private Wire() { }

    /** Python said something that is no message, or an error. */
    static final class WireException extends Exception {
        private static final long serialVersionUID = 1L;

        WireException(final String message) {
            super(message);
        }
    }

    static byte[] hello(final String assignor) {
        return new Buffer().putByte(HELLO).putInt(PROTOCOL).putText(assignor).toBytes();
    }

    /** Whether a message that begins so is one of Python's. */
    static boolean isAnswer(final int kind) {
        return kind == WELCOME || kind == ANSWER || kind == ERROR;
    }

    /** The settings that the assignor declares, from the answer to hello. */
    static List<String> welcome(final byte[] message) throws WireException {
        final ByteBuffer in = opened(message, WELCOME);
        try {
            final int protocol = in.getInt();
            final String version = text(in);
            if (protocol != PROTOCOL) {
                throw new WireException("task-assignor " + version + " speaks version " + protocol + " of the bridge, this jar "
                    + PROTOCOL + ". Use the jar that `task-assignor bridge jar` prints");
            }
            final int count = in.getInt();
            final List<String> keys = new ArrayList<>();
            for (int key = 0; key < count; key++) {
                keys.add(text(in));
            }
            return keys;
        } catch (final BufferUnderflowException | NegativeArraySizeException garbage) {
            throw new WireException("the answer to hello is cut short");
        }
    }

    static byte[] assign(final State state, final Map<String, String> settings, final long timeoutMs, final Decision java) {
        final Buffer out = new Buffer().putByte(ASSIGN).putLong(timeoutMs).putLong(state.nowMs);
        final AssignmentConfigs configs = state.configs;
        out.putLong(configs.acceptableRecoveryLag()).putLong(configs.maxWarmupReplicas()).putLong(configs.numStandbyReplicas())
            .putLong(configs.probingRebalanceIntervalMs()).putTexts(configs.rackAwareAssignmentTags())
            .putLong(configs.rackAwareTrafficCost().isPresent() ? configs.rackAwareTrafficCost().getAsInt() : State.MISSING)
            .putLong(configs.rackAwareNonOverlapCost().isPresent() ? configs.rackAwareNonOverlapCost().getAsInt() : State.MISSING)
            .putText(configs.rackAwareAssignmentStrategy());
        out.putTexts(settings.keySet()).putTexts(settings.values());
        putTasks(out, state);
        putClients(out, state);
        putPrevious(out, state);
        putLags(out, state);
        out.putByte(java == null ? 0 : 1);
        if (java != null) {
            putDecision(out, java);
        }
        return out.toBytes();
    }

    private static void putTasks(final Buffer out, final State state) {
        final int count = state.tasks.length;
        final Map<String, Integer> names = new LinkedHashMap<>();
        final TreeSet<String> sorted = new TreeSet<>();
        for (final TaskId task : state.tasks) {
            if (task.topologyName() != null) {
                sorted.add(task.topologyName());
            }
        }
        sorted.forEach(name -> names.put(name, names.size()));
        final State.Table<Set<String>> stores = new State.Table<>();
        final State.Table<String> topics = new State.Table<>();
        final State.Table<Set<String>> racks = new State.Table<>();
        final int[] topology = new int[count];
        final int[] subtopology = new int[count];
        final int[] partition = new int[count];
        final int[] stateful = new int[count];
        final int[] storeSet = new int[count];
        final int[] partitions = new int[count];
        final Buffer rows = new Buffer();
        for (int task = 0; task < count; task++) {
            final TaskId id = state.tasks[task];
            topology[task] = id.topologyName() == null ? -1 : names.get(id.topologyName());
            subtopology[task] = id.subtopology();
            partition[task] = id.partition();
            stateful[task] = state.infos[task].isStateful() ? 1 : 0;
            storeSet[task] = stores.number(state.infos[task].stateStoreNames());
            for (final TaskTopicPartition one : state.partitions[task]) {
                partitions[task]++;
                rows.putInt(topics.number(one.topicPartition().topic())).putInt(one.topicPartition().partition())
                    .putInt((one.isSource() ? 1 : 0) + (one.isChangelog() ? 2 : 0))
                    .putInt(one.rackIds().isPresent() ? racks.number(one.rackIds().get()) : -1);
            }
        }
        out.putTexts(sorted).putTexts(topics.values());
        for (final State.Table<Set<String>> sets : List.of(stores, racks)) {
            out.putInt(sets.values().size());
            sets.values().forEach(out::putTexts);
        }
        out.putInt(count).putInts(topology).putInts(subtopology).putInts(partition).putInts(stateful).putInts(storeSet)
            .putLongs(state.endOffsetSum).putInts(partitions).putRaw(rows);
    }

    private static void putClients(final Buffer out, final State state) {
        out.putInt(state.clients.length);
        for (int client = 0; client < state.clients.length; client++) {
            final KafkaStreamsState one = state.clients[client];
            final HostInfo host = one.hostInfo().orElse(null);
            final Map<String, String> tags = new TreeMap<>(one.clientTags());
            out.putText(state.processes[client].id().toString()).putInt(one.numProcessingThreads())
                .putText(one.rackId().orElse(null)).putTexts(tags.keySet()).putTexts(tags.values())
                .putText(host == null ? null : host.host()).putInt(host == null ? 0 : host.port())
                .putTexts(state.consumers().get(client).keySet());
        }
    }

    /** Previous tasks of clients by role, then those of consumers: rows of three numbers; gone tasks with their ids. */
    private static void putPrevious(final Buffer out, final State state) {
        final Buffer rows = new Buffer();
        final Buffer gone = new Buffer();
        final int[] counts = new int[2];
        int consumer = 0;
        final Buffer consumerRows = new Buffer();
        final Buffer consumerGone = new Buffer();
        final int[] consumerCounts = new int[2];
        for (int client = 0; client < state.clients.length; client++) {
            final KafkaStreamsState one = state.clients[client];
            for (int role = 0; role < 2; role++) {
                for (final TaskId task : new TreeSet<>(role == 0 ? one.previousActiveTasks() : one.previousStandbyTasks())) {
                    put(state.number(task), task, rows, gone, counts, client, role);
                }
            }
            for (final Set<TaskId> tasks : state.consumers().get(client).values()) {
                for (final TaskId task : tasks) {
                    put(state.number(task), task, consumerRows, consumerGone, consumerCounts, consumer, 0);
                }
                consumer++;
            }
        }
        out.putInt(counts[0]).putRaw(rows).putInt(counts[1]).putRaw(gone);
        out.putInt(consumerCounts[0]).putRaw(consumerRows).putInt(consumerCounts[1]).putRaw(consumerGone);
    }

    private static void put(
        final int number, final TaskId task, final Buffer rows, final Buffer gone, final int[] counts, final int owner, final int role
    ) {
        if (number >= 0) {
            rows.putInt(owner).putInt(role).putInt(number);
            counts[0]++;
        } else {
            gone.putInt(owner).putInt(role).putText(task.toString());
            counts[1]++;
        }
    }

    private static void putLags(final Buffer out, final State state) {
        out.putByte(state.hasLags ? 1 : 0);
        out.putInts(Arrays.stream(state.lagTasks).mapToInt(tasks -> tasks.length).toArray());
        for (int client = 0; client < state.lagTasks.length; client++) {
            out.putInts(state.lagTasks[client]);
        }
        for (final long[] lags : state.lags) {
            out.putLongs(lags);
        }
    }

    private static void putDecision(final Buffer out, final Decision decision) {
        for (final int[][] role : List.of(decision.active, decision.standby)) {
            out.putInts(Arrays.stream(role).mapToInt(tasks -> tasks.length).toArray());
        }
        out.putLongs(decision.deadlineMs);
        for (final int[][] role : List.of(decision.active, decision.standby)) {
            for (final int[] tasks : role) {
                out.putInts(tasks);
            }
        }
    }

    /** What Python decided, and the measures of Java's decision and of Python's, where Java's was sent. */
    static final class Answer {
        final Decision decision;
        final Map<String, double[]> measures = new LinkedHashMap<>();

        Answer(final Decision decision) {
            this.decision = decision;
        }
    }

    static Answer answer(final byte[] message, final int clients) throws WireException {
        final ByteBuffer in = opened(message, ANSWER);
        try {
            if (in.getInt() != clients) {
                throw new WireException("the answer is for another number of clients");
            }
            final int[][][] roles = new int[2][clients][];
            for (final int[][] role : roles) {
                for (int client = 0; client < clients; client++) {
                    role[client] = new int[checked(in.getInt(), in.remaining() / 4)];
                }
            }
            final long[] deadlines = new long[clients];
            for (int client = 0; client < clients; client++) {
                deadlines[client] = in.getLong();
            }
            for (final int[][] role : roles) {
                for (final int[] tasks : role) {
                    for (int task = 0; task < tasks.length; task++) {
                        tasks[task] = in.getInt();
                    }
                }
            }
            final Answer answer = new Answer(new Decision(roles[0], roles[1], deadlines));
            for (int left = in.getInt(); left > 0; left--) {
                answer.measures.put(text(in), new double[] {in.getDouble(), in.getDouble()});
            }
            if (in.hasRemaining()) {
                throw new WireException("the answer has " + in.remaining() + " bytes too many");
            }
            return answer;
        } catch (final BufferUnderflowException garbage) {
            throw new WireException("the answer is cut short");
        }
    }

    private static ByteBuffer opened(final byte[] message, final int wanted) throws WireException {
        final ByteBuffer in = ByteBuffer.wrap(message);
        final int kind = in.hasRemaining() ? in.get() : 0;
        if (kind == ERROR) {
            throw new WireException(text(in));
        }
        if (kind != wanted) {
            throw new WireException("what came is not a message of the bridge");
        }
        return in;
    }

    private static String text(final ByteBuffer in) throws WireException {
        try {
            final byte[] bytes = new byte[checked(in.getInt(), in.remaining())];
            in.get(bytes);
            return new String(bytes, StandardCharsets.UTF_8);
        } catch (final BufferUnderflowException garbage) {
            throw new WireException("a text is cut short");
        }
    }

    private static int checked(final int length, final int most) throws WireException {
        if (length < 0 || length > most) {
            throw new WireException("a length of " + length + " cannot be");
        }
        return length;
    }
}
